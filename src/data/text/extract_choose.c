// SPDX-License-Identifier: Apache-2.0
// Which part of a page is its main text.
//
// Two questions, in order. First what is certainly not: elements that HTML or their names call
// navigation, footers, asides, comments, popups; unless most of the page's text is in them, for
// names lie ("sidebar-layout" on the wrapper of everything). Then where the rest is: the element
// that says so (main, article, articleBody) if it holds enough, else the smallest element that
// holds nearly all text of blocks that read like paragraphs, found by going down from the top.
// Inside it, blocks that are mostly links go, as lists of links to other pages do.
//
// The thresholds were set on one half of the pages of bench/extract and reported on the other
// (docs/extraction.md). Ideas are from Kohlschuetter et al., "Boilerplate detection using shallow
// text features" (2010), and the rule lists of public extractors.
#include "data/text/extract_impl.h" /* this module's contract */

enum { PARAGRAPH = 80, SHORT_PAGE = 200 };

static double density(const node_info *n) { return n->text ? (double)n->linked / n->text : 0; }

static double share(const node_info *n, const node_info *of) {
    return of->text ? (double)n->text / of->text : 0;
}

static bool has_tag(const gw_extract *e, uint32_t i, gw_tag tag) {
    for (uint32_t k = i + 1; k < e->html.nodes[i].end; k++)
        if (e->html.nodes[k].tag == tag) return true;
    return false;
}

/* --- what is not ------------------------------------------------------------------------------ */

/* The page's own header: the title in it is kept by keeping a small one. */
static bool header_goes(const gw_extract *e, uint32_t i, const node_info *all,
                        const gw_extract_options *o) {
    const node_info *n = &e->info[i];
    if (n->marks & MARK_INNER) return false;
    if (share(n, all) > 0.4) return false;
    bool title = n->text < 400 && density(n) < 0.4 && has_tag(e, i, GW_TAG_h1);
    return o->favour == GW_FAVOUR_PRECISION || !title;
}

static bool tag_goes(const gw_extract *e, uint32_t i, const node_info *all,
                     const gw_extract_options *o) {
    const node_info *n = &e->info[i];
    bool recall_inside = o->favour == GW_FAVOUR_RECALL && (n->marks & MARK_INNER);
    switch ((int)e->html.nodes[i].tag) {
    case GW_TAG_nav:
    case GW_TAG_menu: return share(n, all) < 0.6 || density(n) > 0.5;
    case GW_TAG_aside:
    case GW_TAG_footer: return share(n, all) < 0.5 && !recall_inside;
    case GW_TAG_header: return header_goes(e, i, all, o);
    case GW_TAG_form:
    case GW_TAG_search:
    case GW_TAG_button: return share(n, all) < 0.3;
    case GW_TAG_figure: return o->favour == GW_FAVOUR_PRECISION;
    default: return false;
    }
}

/* True if blocks of prose stand beside the element, directly in its parent: then it is part of a
 * text, a box in a chapter, and no column of the page. */
static bool in_prose(const gw_extract *e, uint32_t i) {
    const gw_html_node *nodes = e->html.nodes;
    uint32_t parent = nodes[i].parent, prose = 0;
    for (uint32_t k = parent + 1; k < nodes[parent].end && prose < 2; k = nodes[k].end) {
        bool leaf = k != i && e->info[k].block == k && e->info[k].text >= PARAGRAPH &&
                    density(&e->info[k]) < 0.3;
        for (uint32_t d = k + 1; leaf && d < nodes[k].end; d++)
            leaf = !(gw_html_flags[nodes[d].tag] & GW_HTML_BLOCK);
        prose += leaf;
    }
    return prose >= 2;
}

/* What a class or id says. Comments go however long they are, if there is a text beside them. */
static bool name_goes(const gw_extract *e, uint32_t i, const node_info *all,
                      const gw_extract_options *o) {
    const node_info *n = &e->info[i];
    uint32_t m = n->marks;
    if (!(m & (MARK_CHROME | MARK_COMMENT | MARK_META | MARK_BYLINE | MARK_HIDE | MARK_TOC)))
        return false;
    double part = share(n, all);
    bool recall = o->favour == GW_FAVOUR_RECALL;
    if (m & MARK_HIDE) return part < 0.2;
    if (m & (MARK_BODY | MARK_ROLE_MAIN)) return false;
    if ((m & MARK_COMMENT) && !o->comments)
        return part < 0.5 || all->text - n->text > 3 * SHORT_PAGE;
    if (m & MARK_CHROME) {
        bool prose = density(n) < 0.15 && n->text > SHORT_PAGE;
        if (recall && prose) return false;
        if ((m & MARK_SIDE) && density(n) < 0.2 && o->favour != GW_FAVOUR_PRECISION &&
            in_prose(e, i))
            return false;
        if (prose && n->text > 3 * SHORT_PAGE && !(m & (MARK_FOOT | MARK_POPUP | MARK_SIDE)))
            return false;
        return part < 0.35 || (density(n) > 0.6 && part < 0.7);
    }
    if (m & MARK_TOC) return density(n) > 0.6 && part < 0.7;
    if ((m & MARK_META) && (m & MARK_ARTICLE)) return !recall && n->text < SHORT_PAGE;
    if (m & MARK_BYLINE) return !recall && n->text < SHORT_PAGE;
    return false;
}

static void take_out(gw_extract *e, const gw_extract_options *o) {
    const gw_html_node *nodes = e->html.nodes;
    node_info *info = e->info;
    const node_info all = info[0];
    for (uint32_t i = 1; i < e->html.count;) {
        bool element = nodes[i].tag != GW_TAG_TEXT;
        bool gone = (info[i].marks & MARK_UNSEEN) ||
                    (element && (tag_goes(e, i, &all, o) || name_goes(e, i, &all, o)));
        if (gone) info[i].marks |= MARK_GONE;
        i = gone ? nodes[i].end : i + 1;
    }
}

/* --- where the text is ------------------------------------------------------------------------ */

/* Counts again what is left. */
static void count_left(gw_extract *e) {
    const gw_html_node *nodes = e->html.nodes;
    node_info *info = e->info;
    for (uint32_t i = 0; i < e->html.count;) {
        node_info *n = &info[i];
        if (n->marks & MARK_GONE) {
            for (uint32_t end = nodes[i].end; i < end; i++)
                info[i].text = info[i].linked = info[i].links = info[i].own = info[i].good =
                    info[i].items = 0;
            continue;
        }
        n->own = n->good = n->items = 0;
        if (nodes[i].tag == GW_TAG_TEXT)
            info[n->block].own += n->text - n->linked;
        else
            n->text = n->linked = 0, n->links = (n->marks & MARK_HREF) != 0;
        i++;
    }
    for (uint32_t i = e->html.count; i-- > 1;) {
        node_info *n = &info[i], *up = &info[nodes[i].parent];
        if (n->own) {
            n->items++;
            gw_tag tag = (gw_tag)nodes[i].tag;
            bool prose = n->own >= PARAGRAPH || tag == GW_TAG_p || tag == GW_TAG_pre ||
                         tag == GW_TAG_blockquote || tag == GW_TAG_dd;
            n->good += prose ? n->own : n->own / 4;
        }
        up->text += n->text;
        up->linked += n->linked;
        up->links += n->links;
        up->good += n->good;
        up->items += n->items;
    }
}

/* True if the node says that it is the main text, and at least `least` of it is good. */
static bool is_claim(const gw_extract *e, uint32_t i, double least) {
    const node_info *n = &e->info[i];
    if (!(n->marks & MARK_CLAIM) || (n->marks & MARK_GONE) || n->good < least) return false;
    gw_tag tag = (gw_tag)e->html.nodes[i].tag;
    return tag != GW_TAG_body && tag != GW_TAG_html;
}

static uint32_t common_parent(const gw_extract *e, uint32_t a, uint32_t b) {
    while (a && !(b >= a && b < e->html.nodes[a].end)) a = e->html.nodes[a].parent;
    return a;
}

/* Between several texts of one page (posts, answers) stand names, dates and buttons: lines that are
 * neither headings nor paragraphs go. */
static void clear_between(gw_extract *e, uint32_t root, double least) {
    const gw_html_node *nodes = e->html.nodes;
    for (uint32_t i = root + 1; i < nodes[root].end;) {
        if (is_claim(e, i, least)) {
            i = nodes[i].end;
            continue;
        }
        bool text = nodes[i].tag == GW_TAG_TEXT && !(e->info[i].marks & MARK_GONE);
        uint32_t block = e->info[i].block;
        if (text && !(gw_html_flags[nodes[block].tag] & GW_HTML_HEADING) &&
            e->info[block].own < PARAGRAPH)
            e->info[i].marks |= MARK_GONE;
        i++;
    }
}

/* The element that says it is the main text and holds the most of it, or what is around several of
 * them; 0 if they hold too little. */
static uint32_t claimed_root(gw_extract *e, const gw_extract_options *o) {
    const double all = e->info[0].good;
    double need = o->favour == GW_FAVOUR_RECALL ? 0.6 : 0.4, sum = 0;
    uint32_t best = 0, around = 0, count = 0;
    for (uint32_t i = 1; i < e->html.count; i++) {
        if (!is_claim(e, i, 1)) continue;
        uint32_t good = e->info[i].good;
        bool inside = best && i < e->html.nodes[best].end;
        if (!best || good > e->info[best].good ||
            (inside && good * 10.0 >= e->info[best].good * 9.0))
            best = i;
    }
    if (!best || e->info[best].good >= 0.65 * all) return best;
    for (uint32_t i = 1; i < e->html.count;) {
        if (!is_claim(e, i, 0.03 * all)) {
            i++;
            continue;
        }
        sum += e->info[i].good;
        around = count++ ? common_parent(e, around, i) : i;
        i = e->html.nodes[i].end;
    }
    if (sum < need * all) return 0;
    if (count > 1 && around && o->favour != GW_FAVOUR_RECALL) clear_between(e, around, 0.03 * all);
    return around;
}

/* Down from `root` while one child holds nearly all that is good. */
static uint32_t descend(const gw_extract *e, uint32_t root, double need) {
    const gw_html_node *nodes = e->html.nodes;
    for (;;) {
        uint32_t next = 0;
        for (uint32_t k = root + 1; k < nodes[root].end; k = nodes[k].end) {
            bool block = nodes[k].tag != GW_TAG_TEXT && e->info[k].items > 0 &&
                         !(e->info[k].marks & MARK_GONE);
            if (block && e->info[k].good > need * e->info[root].good) next = k;
        }
        if (!next || nodes[next].tag == GW_TAG_p || nodes[next].tag == GW_TAG_pre) return root;
        if (e->info[next].items < 2) return root;
        root = next;
    }
}

/* Headings stand beside the element that holds the text: the root goes up while that adds little
 * else. */
static uint32_t with_heading(const gw_extract *e, uint32_t root) {
    const gw_html_node *nodes = e->html.nodes;
    if (root == 0 || has_tag(e, root, GW_TAG_h1)) return root;
    uint32_t up = root;
    for (int step = 0; step < 3 && up; step++) {
        up = nodes[up].parent;
        if (e->info[up].good > e->info[root].good * 1.1 + 100) return root;
        if (has_tag(e, up, GW_TAG_h1)) return up;
    }
    return root;
}

/* --- links inside ----------------------------------------------------------------------------- */

static bool prunable(gw_tag tag) {
    return tag == GW_TAG_ul || tag == GW_TAG_ol || tag == GW_TAG_dl || tag == GW_TAG_div ||
           tag == GW_TAG_table || tag == GW_TAG_section || tag == GW_TAG_p ||
           tag == GW_TAG_center || tag == GW_TAG_dir || tag == GW_TAG_UNKNOWN;
}

static bool link_list(const gw_extract *e, uint32_t i, const node_info *all,
                      const gw_extract_options *o) {
    const node_info *n = &e->info[i];
    if (!prunable((gw_tag)e->html.nodes[i].tag) || n->links < 2 || n->text == 0) return false;
    double d = density(n), limit = o->favour == GW_FAVOUR_PRECISION ? 0.5
                                   : o->favour == GW_FAVOUR_RECALL  ? 0.9
                                                                    : 0.66;
    if (e->html.nodes[i].tag == GW_TAG_table && limit < 0.85) limit = 0.85;
    return d > limit && share(n, all) < 0.5;
}

static void prune_links(gw_extract *e, uint32_t root, const gw_extract_options *o) {
    const node_info all = e->info[root];
    for (uint32_t i = root + 1; i < e->html.nodes[root].end;) {
        if (link_list(e, i, &all, o)) e->info[i].marks |= MARK_GONE;
        i = e->info[i].marks & MARK_GONE ? e->html.nodes[i].end : i + 1;
    }
}

uint32_t gw_extract_choose(gw_extract *e, const gw_extract_options *o) {
    take_out(e, o);
    count_left(e);
    uint32_t root = claimed_root(e, o);
    double need = o->favour == GW_FAVOUR_RECALL ? 0.95 : 0.85;
    if (!root && e->info[0].good >= SHORT_PAGE) root = descend(e, 0, need);
    root = with_heading(e, root);
    prune_links(e, root, o);
    return root;
}
