// SPDX-License-Identifier: Apache-2.0
// Finding personal things in a text in one pass, and writing something else in their place.
//
// E-mail and IP addresses mean here exactly what they mean to datatrove's PIIFormatter (FineWeb's
// recipe): its regular expressions are matched leftmost and greedily, an address that Python's
// ipaddress does not call global stays, and the replacements are its own. The other kinds have no
// such authority; they aim at few false finds on version numbers, dates, ISBNs and hashes, and
// bench/filters prints precision and recall.
//
// E-mail has priority, as there, where it is replaced first: the next one is always known ahead (by
// its "@"), and the other kinds are looked for only up to where it begins. They are tried at bytes
// that a table marks: digits, and for secrets a few rare letters and signs; all other text passes
// at the speed of that table. Detectors look a bounded way around a byte or move past what they
// read, so a text takes linear time.
#include "data/text/pii.h" /* gw_pii */

#include <string.h>

#include "base/arena.h"         /* gw_mem_zalloc */
#include "base/map.h"           /* GW_VEC, gw_vec_push */
#include "data/text/pii_impl.h" /* pii_email, pii_ip, pii_phone, pii_card, pii_secret */

struct gw_pii {
    GW_VEC(gw_pii_span) spans;
    gw_str out;
    bool go_on;
    int turn[GW_PII_KINDS];
    uint8_t trigger[256];
    bool on[GW_PII_KINDS];
};

gw_pii *gw_pii_new(void) { return gw_mem_zalloc(sizeof(gw_pii)); }

void gw_pii_free(gw_pii *p) {
    if (!p) return;
    gw_vec_release(&p->spans);
    gw_str_release(&p->out);
    gw_mem_free(p);
}

void gw_pii_continue(gw_pii *p, bool on) { p->go_on = on; }

gw_pii_options gw_pii_defaults(void) {
    return (gw_pii_options){.how = {[GW_PII_EMAIL] = GW_PII_REPLACE, [GW_PII_IP] = GW_PII_REPLACE}};
}

static void set_triggers(gw_pii *p, const gw_pii_options *o) {
    memset(p->trigger, 0, sizeof p->trigger);
    for (int k = 0; k < GW_PII_KINDS; k++) p->on[k] = o->how[k] != GW_PII_OFF;
    bool digits = p->on[GW_PII_IP] || p->on[GW_PII_PHONE] || p->on[GW_PII_CARD];
    for (int c = '0'; digits && c <= '9'; c++) p->trigger[c] = 1;
    if (p->on[GW_PII_PHONE]) p->trigger['+'] = p->trigger['('] = 1;
    if (p->on[GW_PII_SECRET])
        for (const char *c = PII_SECRET_BYTES; *c; c++) p->trigger[(uint8_t)*c] |= 2;
}

/* The first find at or after i, before `end`, of the kinds that are not e-mail. */
static bool find_next(const gw_pii *p, const gw_pii_options *o, const char *text, int64_t from,
                      int64_t end, gw_pii_span *out) {
    const uint8_t *t = p->trigger;
    for (int64_t i = from; i < end;) {
        while (i + 4 <= end && !(t[(uint8_t)text[i]] | t[(uint8_t)text[i + 1]] |
                                 t[(uint8_t)text[i + 2]] | t[(uint8_t)text[i + 3]]))
            i += 4;
        while (i < end && !t[(uint8_t)text[i]]) i++;
        if (i >= end) return false;
        uint8_t why = t[(uint8_t)text[i]];
        pii_text at = {text, from, end};
        int64_t skip = i + 1;
        if (why & 1) {
            if (p->on[GW_PII_IP] && pii_ip(&at, i, o->all_ips, out, &skip)) return true;
            if (p->on[GW_PII_PHONE] && pii_phone(&at, i, out)) return true;
            if (p->on[GW_PII_CARD] && pii_card(&at, i, out)) return true;
        }
        if (why & 2 && pii_secret(&at, i, out)) return true;
        /* Within a run of digits only its first is a beginning. */
        if (why & 1 && text[i] != '+' && text[i] != '(' && skip == i + 1)
            while (skip < end && text[skip] >= '0' && text[skip] <= '9') skip++;
        i = skip;
    }
    return false;
}

static void find_all(gw_pii *p, const gw_pii_options *o, const char *text, int64_t n) {
    set_triggers(p, o);
    p->spans.count = 0;
    bool any =
        p->on[GW_PII_IP] || p->on[GW_PII_PHONE] || p->on[GW_PII_CARD] || p->on[GW_PII_SECRET];
    int64_t at = 0;
    while (at <= n) {
        gw_pii_span mail;
        if (!p->on[GW_PII_EMAIL] || !pii_email(text, n, at, &mail))
            mail = (gw_pii_span){GW_PII_EMAIL, n, 0};
        gw_pii_span other;
        while (any && find_next(p, o, text, at, mail.offset, &other)) {
            gw_vec_push(&p->spans, other);
            at = other.offset + other.bytes;
        }
        if (mail.offset == n) return;
        gw_vec_push(&p->spans, mail);
        at = mail.offset + mail.bytes;
    }
}

/* datatrove's own, in its order; then ones that nobody has. */
static const char *const replacements[GW_PII_KINDS][6] = {
    {"email@example.com", "firstname.lastname@example.org"},
    {"22.214.171.124", "126.96.36.199", "188.8.131.52", "184.108.40.206", "220.127.116.11",
     "18.104.22.168"},
    {"+1-202-555-0100", "+1-202-555-0143", "+1-202-555-0187"},
    {"4111 1111 1111 1111"},
    {"REMOVED_SECRET"},
};
static const char *const marks[GW_PII_KINDS] = {"<EMAIL>", "<IP>", "<PHONE>", "<CARD>", "<SECRET>"};

static const char *instead(gw_pii *p, const gw_pii_options *o, gw_pii_kind k) {
    if (o->how[k] == GW_PII_MARK) return marks[k];
    const char *text = replacements[k][p->turn[k]];
    p->turn[k]++;
    if (p->turn[k] == 6 || !replacements[k][p->turn[k]]) p->turn[k] = 0;
    return text;
}

void gw_pii_mark(gw_pii *p, const gw_pii_options *o, gw_str *text, gw_pii_counts *counts) {
    if (!p->go_on) memset(p->turn, 0, sizeof p->turn);
    if (!text->len) return;
    find_all(p, o, text->data, (int64_t)text->len);
    if (!p->spans.count) return;
    gw_str_clear(&p->out);
    int64_t from = 0;
    for (int64_t i = 0; i < p->spans.count; i++) {
        gw_pii_span s = p->spans.items[i];
        counts->found[s.kind]++;
        gw_str_add_n(&p->out, text->data + from, (size_t)(s.offset - from));
        gw_str_add(&p->out, instead(p, o, s.kind));
        from = s.offset + s.bytes;
    }
    gw_str_add_n(&p->out, text->data + from, text->len - (size_t)from);
    gw_str other = *text;
    *text = p->out;
    p->out = other;
}

int64_t gw_pii_find(gw_pii *p, const gw_pii_options *o, const char *text, int64_t n,
                    gw_pii_span *spans, int64_t limit) {
    find_all(p, o, text, n);
    int64_t count = p->spans.count < limit ? p->spans.count : limit;
    if (count > 0) memcpy(spans, p->spans.items, (size_t)count * sizeof *spans);
    return p->spans.count;
}

static const char *const names[GW_PII_KINDS] = {"email", "ip", "phone", "card", "secret"};

const char *gw_pii_kind_name(gw_pii_kind k) { return names[k]; }
