# SPDX-License-Identifier: Apache-2.0
#
# The pages of bench/extract: HTML with its main text known, made from what Debian packages ship.
#
# Two kinds. "docs": pages of documentation packages, whose generator (Sphinx, DocBook, gtk-doc,
# Publican, asciidoc, Node's own) is known, so that the main text is the content element less what
# the generator adds: navigation, tables of contents, pilcrows. "made": paragraphs of those
# documents set into templates as blogs, shops, forums and news sites write them, with menus, lists
# of other articles, comments and footers around them.
#
# Each page belongs to one half, "tune" or "held"; for made pages the template decides, so that the
# held half has templates that nobody tuned for. Everything is a function of the packages' bytes.
import glob
import hashlib
import html
import os
import random
import re

from lxml import etree
import lxml.html

SETS = [
    # name, glob, XPath of the content, XPaths of what the generator added within it
    ("sphinx-python", "/usr/share/doc/python3.11/html/*/*.html", "//div[@class='body']",
     ["//a[@class='headerlink']", "//div[contains(@class,'toctree-wrapper')]",
      "//*[contains(concat(' ',@class,' '),' contents ')]"]),
    ("sphinx-policy", "/usr/share/doc/debian-policy/policy.html/*.html",
     "//div[@class='body']", ["//a[@class='headerlink']", "//div[contains(@class,'toctree-wrapper')]"]),
    ("sphinx-devref", "/usr/share/developers-reference/*.html", "//div[@class='body']",
     ["//a[@class='headerlink']", "//div[contains(@class,'toctree-wrapper')]"]),
    ("docbook-postgresql", "/usr/share/doc/postgresql-doc-15/html/*.html", "//body",
     ["//div[@class='navheader']", "//div[@class='navfooter']", "//div[@class='toc']"]),
    ("docbook-valgrind", "/usr/share/doc/valgrind/html/*.html", "//body",
     ["//table[@class='nav']", "//div[@class='toc']", "/html/body/div[not(@class)]"]),
    ("docbook-reference", "/usr/share/debian-reference/*.en.html", "//body",
     ["//div[@class='navheader']", "//div[@class='navfooter']", "//div[@class='toc']"]),
    ("gtkdoc-gtk3", "/usr/share/gtk-doc/html/gtk3/*.html", "//body",
     ["//table[contains(@class,'navigation')]", "//div[@class='toc']", "//div[@class='footer']"]),
    ("publican-en", "/usr/share/doc/debian-handbook/html/en-US/*.html", "//body",
     ["//ul[contains(@class,'docnav')]", "//div[@id='banner']", "//p[@id='title']",
      "//div[@class='toc']"]),
    ("publican-ru", "/usr/share/doc/debian-handbook/html/ru-RU/*.html", "//body",
     ["//ul[contains(@class,'docnav')]", "//div[@id='banner']", "//p[@id='title']",
      "//div[@class='toc']"]),
    ("asciidoc-git", "/usr/share/doc/git-doc/*.html", "//body",
     ["//div[@id='footer']", "//div[@id='toc']"]),
    ("node-api", "/usr/share/doc/nodejs/api/*.html", "//*[@id='apicontent']",
     ["//a[@class='mark']", "//*[@class='srclink']"]),
    ("npm", "/usr/lib/node_modules/npm/docs/output/commands/*.html", "//*[@id='content']",
     ["//*[@id='table_of_contents']", "//*[@id='edit']"]),
]
PER_SET = 40
PER_TEMPLATE = 25

SKIP = {"script", "style", "template", "noscript", "title"}
BLOCK = set("p div li ul ol dl dt dd h1 h2 h3 h4 h5 h6 pre table tr td th br section article "
            "blockquote figure figcaption caption header footer aside nav main hr".split())


def text_of(node):
    """The text below an element, with white space between blocks."""
    parts = []

    def walk(n):
        if not isinstance(n.tag, str) or n.tag in SKIP:
            return
        if n.tag in BLOCK:
            parts.append("\n")
        parts.append(n.text or "")
        for child in n:
            walk(child)
            parts.append(child.tail or "")
        if n.tag in BLOCK:
            parts.append("\n")

    walk(node)
    return "".join(parts)


def half(key):
    return "held" if hashlib.sha256(key.encode()).digest()[0] & 1 else "tune"


def doc_pages():
    for name, pattern, content, chrome in SETS:
        paths = sorted(glob.glob(pattern), key=lambda p: hashlib.sha256(p.encode()).digest())
        taken = 0
        for path in paths:
            if taken == PER_SET:
                break
            if os.path.islink(path):
                continue
            with open(path, "rb") as f:
                raw = f.read()
            tree = lxml.html.document_fromstring(raw, parser=lxml.html.HTMLParser(encoding="utf-8"))
            for xpath in chrome:
                for node in tree.getroottree().xpath(xpath):
                    if node.getparent() is not None:
                        node.drop_tree()
            found = tree.xpath(content)
            if not found:
                continue
            text = text_of(found[0])
            if len(re.sub(r"\s", "", text)) < 400 or len(raw) > 400000:
                continue
            taken += 1
            yield {"name": f"{name}/{os.path.basename(path)}", "kind": "docs", "group": name,
                   "half": half(path), "html": raw, "text": text}


# ---------------------------------------------------------------- made pages

def pool():
    """Paragraphs (as HTML and as text) and titles out of the Debian handbook."""
    paragraphs, titles = [], []
    for path in sorted(glob.glob("/usr/share/doc/debian-handbook/html/en-US/*.html")):
        tree = lxml.html.parse(path, parser=lxml.html.HTMLParser(encoding="utf-8")).getroot()
        for node in tree.xpath("//div[@class='para']"):
            text = " ".join(text_of(node).split())
            if 120 < len(text) < 900 and not node.xpath(".//pre|.//ul|.//table"):
                paragraphs.append(text)
        for node in tree.xpath("//h2|//h3"):
            title = re.sub(r"^[\d.]+\s*", "", " ".join(text_of(node).split()))
            if 8 < len(title) < 80:
                titles.append(title)
    return paragraphs, sorted(set(titles))


MENU = ("Home News World Politics Business Technology Science Health Sports Arts Books Style Food "
        "Travel Magazine Video About Contact Careers Shop Support Forum Downloads Blog Pricing "
        "Docs Community Login Register Account Cart Help").split()
FOOT = ["Privacy Policy", "Terms of Service", "Cookie Settings", "Advertise with us", "Site Map",
        "Accessibility", "Your Ad Choices", "Press Room", "All rights reserved."]
NAMES = "Ada Grace Linus Barbara Dennis Ken Margaret Edsger Radia Donald Frances Niklaus".split()


class Maker:
    def __init__(self, template, index, paragraphs, titles):
        self.r = random.Random(f"{template}/{index}")
        self.paragraphs, self.titles = paragraphs, titles
        self.truth = []

    def title(self):
        return self.r.choice(self.titles)

    def para(self):
        return self.r.choice(self.paragraphs)

    def keep(self, text):
        self.truth.append(text)
        return html.escape(text, quote=False)

    def linked(self, text):
        """A paragraph with a link and some markup in it."""
        words = text.split(" ")
        out = [html.escape(w, quote=False) for w in words]
        if len(words) > 14:
            at = self.r.randrange(2, len(words) - 8)
            tag = self.r.choice(['a href="/x"', "em", "strong", "code"])
            out[at] = f"<{tag}>" + out[at]
            out[at + 2] += f"</{tag.split()[0]}>"
        self.truth.append(text)
        return " ".join(out)

    def links(self, n, wrap="li"):
        return "".join(f'<{wrap}><a href="/{i}">{self.r.choice(MENU)}</a></{wrap}>' for i in range(n))

    def headlines(self, n, wrap="li", teaser=0.0):
        out = []
        for i in range(n):
            extra = ""
            if self.r.random() < teaser:
                extra = f"<p>{html.escape(self.para()[:110], quote=False)}...</p>"
            out.append(f'<{wrap}><a href="/story/{i}">{html.escape(self.title())}</a>{extra}</{wrap}>')
        return "".join(out)

    def body(self, p="p", heading="h2", n=None):
        """Paragraphs with headings, a list, a block of code, now and then a quotation or table."""
        r, out = self.r, []
        for i in range(n or r.randint(4, 12)):
            if i and r.random() < 0.2:
                out.append(f"<{heading}>{self.keep(self.title())}</{heading}>")
            out.append(f"<{p}>{self.linked(self.para())}</{p}>")
            if r.random() < 0.12:
                items = "".join(f"<li>{self.keep(self.para()[:100])}</li>" for _ in range(r.randint(2, 5)))
                out.append(f"<ul>{items}</ul>")
            if r.random() < 0.06:
                out.append(f"<pre><code>{self.keep('apt-get install ' + r.choice(MENU).lower())}\n</code></pre>")
            if r.random() < 0.06:
                out.append(f"<blockquote><p>{self.keep(self.para())}</p></blockquote>")
            if r.random() < 0.05:
                rows = "".join(f"<tr><td>{self.keep(r.choice(MENU))}</td><td>{self.keep(self.title())}</td></tr>"
                               for _ in range(3))
                out.append(f"<table>{rows}</table>")
        return "\n".join(out)

    def footer_text(self):
        return " | ".join(f'<a href="/f">{f}</a>' for f in FOOT) + " &copy; 2024 Example Media Group"

    def comments(self, n):
        return "".join(f'<li class="comment"><span class="author">{self.r.choice(NAMES)}</span>'
                       f' says: <p>{html.escape(self.para()[:200], quote=False)}</p>'
                       f'<a href="#r">Reply</a></li>' for _ in range(n))

    def page(self, title, body, head=""):
        return (f"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>"
                f"{html.escape(title)} - Example</title>{head}<style>body {{ margin: 0 }}</style>"
                f"<script>var x = '<p>not text</p>'; if (1 < 2) track();</script></head>"
                f"<body>{body}</body></html>")


def wordpress(m):
    t = m.title()
    return m.page(t, f"""<div id="page" class="hfeed site"><header id="masthead" class="site-header"><h1 class="site-title">
<a href="/">The Example Blog</a></h1><p class="site-description">Just another blog about things</p></header>
<nav id="site-navigation" class="main-navigation"><ul class="menu">{m.links(7)}</ul></nav>
<div id="content" class="site-content"><main id="main" class="site-main"><article id="post-12" class="post type-post hentry category-x">
<header class="entry-header"><h1 class="entry-title">{m.keep(t)}</h1><div class="entry-meta"><span class="posted-on">Posted on
<a href="/d"><time datetime="2024-03-01">March 1, 2024</time></a></span> <span class="byline">by <a href="/a">{m.r.choice(NAMES)}</a></span></div></header>
<div class="entry-content">{m.body()}<div class="sharedaddy sd-sharing"><h3>Share this:</h3><ul><li><a href="/t">Twitter</a></li><li><a href="/f">Facebook</a></li></ul></div></div>
<footer class="entry-footer"><span class="cat-links">Posted in <a href="/c">{m.r.choice(MENU)}</a></span><span class="tags-links">Tagged <a href="/t">x</a>, <a href="/u">y</a></span></footer></article>
<nav class="navigation post-navigation"><h2 class="screen-reader-text">Post navigation</h2><div class="nav-links">{m.headlines(2, 'div')}</div></nav>
<div id="comments" class="comments-area"><h2 class="comments-title">{m.r.randint(2, 9)} thoughts on this post</h2><ol class="comment-list">{m.comments(m.r.randint(0, 6))}</ol>
<div id="respond"><h3>Leave a Reply</h3><form><p>Your email address will not be published. Required fields are marked *</p><textarea>text</textarea></form></div></div>
</main></div><aside id="secondary" class="widget-area"><section class="widget"><h2>Recent Posts</h2><ul>{m.headlines(5)}</ul></section>
<section class="widget"><h2>Archives</h2><ul>{m.links(8)}</ul></section></aside><footer id="colophon" class="site-footer">Proudly powered by WordPress. {m.footer_text()}</footer></div>""")


def news(m):
    t = m.title()
    return m.page(t, f"""<div class="cookie-banner" role="dialog"><p>We and our partners use cookies to store and access personal data, such as browsing data, on your device to serve ads.</p>
<button>Accept all</button></div><header class="page-header"><div class="logo"><a href="/">Daily Example</a></div><nav><ul>{m.links(12)}</ul></nav></header>
<main><div class="article-wrap"><article><h1>{m.keep(t)}</h1><p class="standfirst">{m.keep(m.para())}</p><div class="article-byline">By {m.r.choice(NAMES)}, 12 March 2024, 10:22</div>
<figure><img src="x.jpg" alt="x"><figcaption>{m.keep(m.title())}</figcaption></figure>
<div class="article-body">{m.body()}<aside class="related-inline"><h3>Read more</h3><ul>{m.headlines(3)}</ul></aside>{m.body(n=3)}</div></article></div>
<section class="recommended"><h2>More on this story</h2><div class="cards">{m.headlines(6, 'div', 0.7)}</div></section></main>
<section class="most-read"><h2>Most read</h2><ol>{m.headlines(10)}</ol></section>
<div class="newsletter"><h3>Sign up for our newsletter</h3><p>Get the day's headlines delivered to your inbox every morning, free of charge.</p></div>
<footer><ul>{m.links(14)}</ul><p>{m.footer_text()}</p></footer>""")


def forum(m):
    posts = "".join(f"""<div class="post" id="p{i}"><div class="postprofile"><a href="/u">{m.r.choice(NAMES)}</a><br>Posts: {m.r.randint(1, 999)}<br>Joined: 2019</div>
<div class="postbody"><div class="content">{m.body('div', 'b', m.r.randint(1, 4))}</div></div></div>""" for i in range(m.r.randint(2, 6)))
    t = m.title()
    return m.page(t, f"""<div id="wrap"><div id="page-header"><div class="headerbar"><h1>Example Forums</h1><p>Where users meet</p></div>
<div class="navbar"><ul class="linklist">{m.links(8)}</ul></div></div><div id="page-body"><h2 class="topic-title"><a href="/t">{m.keep(t)}</a></h2>
<div class="topic-actions"><div class="pagination">12 posts <a href="?1">1</a> <a href="?2">2</a> <a href="?3">Next</a></div></div>{posts}
<div class="action-bar"><a href="/reply">Post Reply</a> <a href="/print">Print view</a></div><div class="stat-block"><h3>Who is online</h3><p>Users browsing this forum: No registered users and 2 guests</p></div></div>
<div id="page-footer">{m.footer_text()} Powered by example forum software</div></div>""")


def shop(m):
    t = m.title()
    specs = "".join(f"<tr><th>{m.keep(m.r.choice(MENU))}</th><td>{m.keep(m.title())}</td></tr>" for _ in range(6))
    cards = "".join(f'<div class="product-card"><a href="/p">{html.escape(m.title())}</a><span class="price">$19.99</span><a href="/b">Add to cart</a></div>' for _ in range(8))
    return m.page(t, f"""<div class="topbar"><a href="/">Free shipping on orders over $50</a></div><header class="header"><nav class="navbar">{m.links(9, 'span')}</nav></header>
<ol class="breadcrumb"><li><a href="/">Home</a></li><li><a href="/c">{m.r.choice(MENU)}</a></li><li>Product</li></ol>
<div class="container"><div class="row"><div class="col-md-6 product-info"><h1>{m.keep(t)}</h1><div class="product-description">{m.body(n=4)}</div>
<table class="specs">{specs}</table></div></div>
<div class="related-products"><h2>Customers also bought</h2>{cards}</div></div>
<div class="footer"><div class="footer-links">{m.links(12, 'p')}</div><div class="copyright">{m.footer_text()}</div></div>""")


def docs(m):
    t = m.title()
    return m.page(t, f"""<nav class="wy-nav-side"><div class="wy-menu">{m.headlines(20)}</div></nav><section class="wy-nav-content-wrap"><div class="wy-nav-content"><div class="rst-content">
<ul class="wy-breadcrumbs"><li><a href="/">Docs</a> &raquo;</li><li>{html.escape(t)}</li><li><a href="/src">Edit on GitHub</a></li></ul>
<div role="main" class="document"><h1>{m.keep(t)}<a class="headerlink" href="#x">&para;</a></h1>{m.body()}</div>
<footer><div class="rst-footer-buttons"><a href="/n">Next</a><a href="/p">Previous</a></div><p>&copy; Copyright 2024. Built with a documentation generator using a theme.</p></footer></div></div></section>""")


def tables(m):
    t = m.title()
    return m.page(t, f"""<table width="100%" border=0><tr><td colspan=2 bgcolor="#ccccff"><font size=5><b>Example Corp</b></font><br>{' | '.join(f'<a href="/{i}">{m.r.choice(MENU)}</a>' for i in range(7))}</td></tr>
<tr><td width=150 valign=top><font size=2>{'<br>'.join(f'<a href="/{i}">{html.escape(m.title())}</a>' for i in range(12))}</font></td>
<td valign=top><font size=4><b>{m.keep(t)}</b></font><p>{m.body()}</td></tr>
<tr><td colspan=2 align=center><font size=1>{m.footer_text()}<br>Last updated: 3 Mar 1999. Best viewed in any browser.</font></td></tr></table>""")


def plain_divs(m):
    """Class names that say nothing."""
    t = m.title()
    c = [hashlib.md5(f"{m.r.random()}".encode()).hexdigest()[:7] for _ in range(12)]
    return m.page(t, f"""<div class="{c[0]}"><div class="{c[1]}">{m.links(10, 'div')}</div><div class="{c[2]}"><div class="{c[3]}"><h1 class="{c[4]}">{m.keep(t)}</h1>
<div class="{c[5]}">{m.body()}</div></div><div class="{c[6]}">{m.headlines(8, 'div', 0.5)}</div></div>
<div class="{c[7]}"><div>{m.links(15, 'span')}</div><div>{m.footer_text()}</div></div></div>""")


def medium(m):
    t = m.title()
    return m.page(t, f"""<div id="root"><div><div><a href="/signin">Sign in</a> <a href="/start">Get started</a></div></div><article><section><div><h1>{m.keep(t)}</h1>
<div><a href="/u">{m.r.choice(NAMES)}</a> <button>Follow</button> <span>{m.r.randint(3, 12)} min read</span> <span>Mar 3</span></div>{m.body()}</div></section></article>
<div><div><a href="/tag/a">{m.r.choice(MENU)}</a><a href="/tag/b">{m.r.choice(MENU)}</a></div><div>{m.r.randint(10, 900)} claps</div></div>
<div><h2>More from the author</h2>{m.headlines(4, 'div', 1.0)}</div><div>{m.links(9, 'a')}</div></div>""")


def wiki(m):
    t = m.title()
    return m.page(t, f"""<div id="mw-page-base" class="noprint"></div><div id="content" class="mw-body" role="main"><h1 id="firstHeading">{m.keep(t)}</h1><div id="bodyContent">
<div id="siteSub" class="noprint">From Example, the free encyclopedia</div><div id="jump-to-nav"></div><a class="mw-jump-link" href="#n">Jump to navigation</a><div id="mw-content-text"><div class="mw-parser-output">
{m.body(heading='h2')}<div class="navbox"><table>{''.join(f'<tr><td>{m.headlines(6, "span")}</td></tr>' for _ in range(3))}</table></div></div></div>
<div id="catlinks" class="catlinks"><a href="/c">Categories</a>: {m.links(4, 'span')}</div></div></div>
<div id="mw-navigation"><h2>Navigation menu</h2><div id="mw-head"><div id="p-personal"><ul>{m.links(5)}</ul></div></div><div id="mw-panel"><h3>Tools</h3><ul>{m.links(9)}</ul></div></div>
<div id="footer" role="contentinfo"><ul><li>This page was last edited on 1 March 2024, at 10:00 (UTC).</li><li>Text is available under a licence; additional terms may apply.</li></ul>{m.footer_text()}</div>""")


def bootstrap(m):
    t = m.title()
    return m.page(t, f"""<nav class="navbar navbar-expand-lg"><a class="navbar-brand" href="/">Example</a><ul class="navbar-nav">{m.links(6)}</ul></nav>
<div class="container mt-4"><div class="row"><div class="col-lg-8"><h1 class="mt-4">{m.keep(t)}</h1><p class="lead">by <a href="/a">{m.r.choice(NAMES)}</a></p><hr><p>Posted on January 1, 2024 at 12:00 PM</p><hr>
{m.body()}<div class="card my-4"><h5 class="card-header">Leave a Comment:</h5><div class="card-body"><form><textarea></textarea><button>Submit</button></form></div></div>
{''.join(f'<div class="media mb-4 comment"><h5>{m.r.choice(NAMES)}</h5>{html.escape(m.para()[:160], quote=False)}</div>' for _ in range(3))}</div>
<div class="col-md-4"><div class="card sidebar"><h5>Categories</h5><ul>{m.links(6)}</ul></div><div class="card sidebar"><h5>Side Widget</h5><div>You can put anything you want inside of these side widgets. They are easy to use!</div></div></div></div></div>
<footer class="py-5 bg-dark"><p class="text-center">{m.footer_text()}</p></footer>""")


def magazine(m):
    t = m.title()
    return m.page(t, f"""<div class="site-wrapper has-sidebar"><div class="site-head"><ul class="nav-list">{m.links(11)}</ul></div><div class="story"><h1 class="story__headline">{m.keep(t)}</h1>
<h2 class="story__dek">{m.keep(m.para()[:140])}</h2><div class="story__credit">Words by {m.r.choice(NAMES)}</div>
<div class="story__content">{m.body()}<div class="ad-slot">Advertisement</div>{m.body(n=2)}<div class="pull-promo promo"><a href="/s">Subscribe now and save 50% on a year of print and digital issues</a></div></div>
<div class="story__author-bio"><p>{m.r.choice(NAMES)} is a contributing writer.</p></div></div>
<div class="trending"><h4>Trending</h4>{m.headlines(8, 'div', 0.4)}</div><div class="site-foot">{m.links(10, 'span')} {m.footer_text()}</div></div>""")


def qanda(m):
    t = m.title()
    answers = "".join(f"""<div class="answer"><div class="votecell"><span>{m.r.randint(0, 99)}</span></div><div class="s-prose js-post-body">{m.body(n=m.r.randint(1, 3))}</div>
<div class="post-menu"><a href="/s">Share</a> <a href="/e">Improve this answer</a> <button>Follow</button></div><div class="user-info">answered Mar 3 at 10:11 <a href="/u">{m.r.choice(NAMES)}</a></div></div>""" for _ in range(3))
    return m.page(t, f"""<header class="s-topbar"><a href="/">Example Exchange</a><ol>{m.links(6)}</ol></header><div class="container"><div id="left-sidebar"><nav><ol>{m.links(8)}</ol></nav></div>
<div id="content"><div id="question-header"><h1>{m.keep(t)}</h1><div>Asked 3 years ago</div><div>Viewed 12k times</div></div><div id="mainbar"><div class="question"><div class="s-prose js-post-body">{m.body(n=3)}</div></div>
<div id="answers"><h2>3 Answers</h2>{answers}</div></div><div id="sidebar"><div class="module sidebar-linked"><h4>Linked</h4>{m.headlines(6, 'div')}</div><div class="module"><h4>Hot Network Questions</h4><ul>{m.headlines(12)}</ul></div></div></div></div>
<footer id="footer"><nav>{m.links(16, 'div')}</nav><p>{m.footer_text()}</p></footer>""")


TUNE = [wordpress, news, forum, tables, plain_divs, docs]
HELD = [shop, medium, wiki, bootstrap, magazine, qanda]


def made_pages():
    paragraphs, titles = pool()
    for which, templates in (("tune", TUNE), ("held", HELD)):
        for template in templates:
            for i in range(PER_TEMPLATE):
                m = Maker(template.__name__, i, paragraphs, titles)
                page = template(m)
                yield {"name": f"{template.__name__}/{i}", "kind": "made", "group": template.__name__,
                       "half": which, "html": page.encode(), "text": "\n".join(m.truth)}


def pages():
    out = list(doc_pages()) + list(made_pages())
    etree.clear_error_log()
    return out
