// SPDX-License-Identifier: Apache-2.0
// Languages: by script, by n-grams, and by models of fastText.
//
// The models in ../golden/fasttext were trained by Debian's fasttext, which also said what they
// predict (make_fasttext.py). Sentences below are of the Universal Declaration of Human Rights,
// article 1, as the United Nations publish it, shortened.
#include "data/text/langid.h" /* gw_langid */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"      /* gw_file_read */
#include "base/rng.h"     /* gw_rng_u32 */
#include "base/str.h"     /* gw_str */
#include "data/unicode.h" /* gw_utf8_encode */
#include "harness.h"      /* TEST, CHECK */

static gw_langid *open_spec(const char *spec) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_langid *l = NULL;
    CHECK_OK(gw_langid_open(spec, &l, &dg), &dg);
    gw_diags_release(&dg);
    return l;
}

static const char *const declared[][2] = {
    {"en", "All human beings are born free and equal in dignity and rights. They are endowed with "
           "reason"},
    {"de", "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft "
           "begabt"},
    {"fr", "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont "
           "doués de raison"},
    {"es",
     "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están"},
    {"it", "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati "
           "di ragione"},
    {"pt",
     "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão"},
    {"nl",
     "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd"},
    {"sv",
     "Alla människor är födda fria och lika i värde och rättigheter. De är utrustade med förnuft"},
    {"da",
     "Alle mennesker er født frie og lige i værdighed og rettigheder. De er udstyret med fornuft"},
    {"pl", "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni "
           "obdarzeni"},
    {"cs",
     "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem"},
    {"hu",
     "Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek, ésszel"},
    {"fi", "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille "
           "on annettu"},
    {"tr", "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana "
           "sahiptirler"},
    {"ro", "Toate fiinţele umane se nasc libere şi egale în demnitate şi în drepturi. Ele sînt "
           "înzestrate"},
    {"vi", "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi."},
    {"ru",
     "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом"},
    {"uk",
     "Всі люди народжуються вільними і рівними у своїй гідності та правах. Вони наділені розумом"},
    {"el", "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα."},
    {"ja", "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"},
    {"zh",
     "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。"},
    {"ko", "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다."},
    {"fa", "تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ "
           "حیثیت"},
    {"ar", "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميرًا"},
    {"he", "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון"},
    {"hi", "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।"},
    {"th", "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ"},
};
#define DECLARED ((int)(sizeof declared / sizeof *declared))

TEST(langid_knows_the_declaration) {
    gw_langid *l = open_spec("builtin");
    CHECK_STR(gw_langid_version(l), "builtin-2");
    char lang[8];
    float score;
    for (int i = 0; i < DECLARED; i++) {
        const char *text = declared[i][1];
        gw_langid_detect(l, text, (int64_t)strlen(text), lang, &score);
        CHECK_MSG(gw_str_eq(lang, declared[i][0]), "%s seen as %s (%.2f)", declared[i][0], lang,
                  (double)score);
        CHECK(score > 0.5f && score <= 1);
    }
    gw_langid_free(l);
}

TEST(langid_says_when_it_cannot_tell) {
    gw_langid *l = open_spec("builtin");
    static const char *const nothing[] = {"", "   \n", "12345 67.8 -- ... !!!", "a", "ab", "😀😀😀"};
    char lang[8];
    float score;
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        gw_langid_detect(l, nothing[i], (int64_t)strlen(nothing[i]), lang, &score);
        CHECK_STR(lang, "");
        CHECK_NEAR(score, 0, 0);
    }
    /* Half German, half Greek: whichever it is, not with certainty. */
    gw_str s = {0};
    gw_str_add(&s, declared[1][1]);
    gw_str_add(&s, declared[18][1]);
    gw_langid_detect(l, s.data, (int64_t)s.len, lang, &score);
    CHECK(score < 0.75f);
    gw_str_release(&s);
    gw_langid_free(l);
}

/* The answer on a long text needs only its parts; any bytes are taken. */
TEST(langid_on_long_texts_and_any_bytes) {
    gw_langid *l = open_spec("builtin");
    char lang[8];
    float score;
    gw_str s = {0};
    while (s.len < 100000) {
        gw_str_add(&s, declared[9][1]);
        gw_str_add(&s, ".\n");
    }
    gw_langid_detect(l, s.data, (int64_t)s.len, lang, &score);
    CHECK_STR(lang, "pl");
    CHECK(score > 0.95f);
    gw_rng_key key = gw_rng_key_named(4, "langid");
    uint64_t draw = 0;
    for (int round = 0; round < 300; round++) {
        gw_str_clear(&s);
        int n = (int)(gw_rng_u32(key, draw++) % 5000);
        for (int i = 0; i < n; i++) gw_str_add_char(&s, (char)gw_rng_u32(key, draw++));
        gw_langid_detect(l, gw_str_c(&s), n, lang, &score);
        CHECK(score >= 0 && score <= 1 && strlen(lang) < 8);
    }
    const char *const *codes;
    CHECK(gw_langid_builtin_languages(&codes) > 60);
    gw_str_release(&s);
    gw_langid_free(l);
}

static void unescape(const char *s, gw_str *out) {
    gw_str_clear(out);
    for (; *s; s++) {
        int digits = s[0] != '\\' ? 0 : s[1] == 'x' ? 2 : s[1] == 'u' ? 4 : s[1] == 'U' ? 8 : 1;
        if (digits < 2) {
            char c = digits ? *++s : *s;
            gw_str_add_char(out, digits && c == 't' ? '\t' : c);
            continue;
        }
        char hex[9] = {0};
        memcpy(hex, s + 2, (size_t)digits);
        s += 1 + digits;
        uint8_t utf8[4];
        int len = gw_utf8_encode((uint32_t)strtoul(hex, NULL, 16), utf8);
        gw_str_add_n(out, utf8, (size_t)len);
    }
}

static int split_tabs(char *line, char **field, int most) {
    int n = 0;
    while (n < most) {
        field[n++] = line;
        char *tab = strchr(line, '\t');
        if (!tab) break;
        *tab = 0;
        line = tab + 1;
    }
    return n;
}

TEST(langid_reads_models_of_fasttext) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_str all = {0}, text = {0};
    CHECK_OK(gw_file_read(test_source_path("golden/fasttext/cases.tsv"), 0, &all, &dg), &dg);
    gw_langid *l = NULL;
    char open_name[40] = "";
    int cases = 0;
    for (char *p = all.data, *end; (end = strchr(p, '\n')); p = end + 1) {
        *end = 0;
        char *field[12];
        int n = split_tabs(p, field, 12), got;
        if (!gw_str_eq(field[0], open_name)) {
            gw_langid_free(l);
            char path[80];
            snprintf(path, sizeof path, "golden/fasttext/%s", field[0]);
            l = open_spec(test_source_path(path));
            snprintf(open_name, sizeof open_name, "%s", field[0]);
        }
        unescape(field[1], &text);
        const char *labels[4];
        float scores[4];
        got = gw_langid_top(l, gw_str_c(&text), (int64_t)text.len, 4, labels, scores);
        CHECK_EQ(got, (n - 2) / 2);
        for (int k = 0; k < got; k++) {
            double want = strtod(field[3 + 2 * k], NULL);
            /* The program prints six figures, and adds up in another order. */
            CHECK_MSG(fabs((double)scores[k] - want) <= 1e-5 * want + 2e-6,
                      "%s '%s' %d: %s %.7g, theirs %s %s", field[0], field[1], k, labels[k],
                      (double)scores[k], field[2 + 2 * k], field[3 + 2 * k]);
            bool tie = k + 1 < got && fabs((double)(scores[k] - scores[k + 1])) < 1e-5;
            tie |= k > 0 && fabs((double)(scores[k] - scores[k - 1])) < 1e-5;
            if (!tie) CHECK_STR(labels[k], field[2 + 2 * k]);
        }
        cases++;
    }
    CHECK(cases > 100);
    gw_langid_free(l);
    gw_str_release(&all);
    gw_str_release(&text);
    gw_diags_release(&dg);
}

/* A model cut anywhere is refused; one with any byte changed is refused or read soundly. */
TEST(langid_refuses_damaged_models) {
    gw_diags dg;
    gw_diags_init(&dg);
    static const char *const names[] = {"hs.bin", "small.ftz"};
    for (int f = 0; f < 2; f++) {
        char path[80];
        snprintf(path, sizeof path, "golden/fasttext/%s", names[f]);
        gw_str all = {0};
        CHECK_OK(gw_file_read(test_source_path(path), 0, &all, &dg), &dg);
        const char *copy = test_tmp_path("model");
        gw_langid *l;
        for (size_t cut = 0; cut < all.len; cut += cut < 700 ? 7 : 211) {
            CHECK_OK(gw_file_write_atomic(copy, all.data, (int64_t)cut, &dg), &dg);
            CHECK_FAILS(gw_langid_open(copy, &l, &dg), &dg, "data-langid-model");
            gw_diags_clear(&dg);
        }
        for (size_t at = 0; at < 1500 && at < all.len; at += 3) {
            char was = all.data[at];
            all.data[at] = (char)(was ^ (at % 2 ? 0xff : 0x41));
            CHECK_OK(gw_file_write_atomic(copy, all.data, (int64_t)all.len, &dg), &dg);
            if (gw_langid_open(copy, &l, &dg) == GW_OK) {
                char lang[8];
                float score;
                gw_langid_detect(l, declared[0][1], 60, lang, &score);
                gw_langid_free(l);
            }
            gw_diags_clear(&dg);
            all.data[at] = was;
        }
        gw_str_release(&all);
    }
    gw_diags_release(&dg);
}

/* A script of one language: its share of the letters, by their bytes, is the score. The letters of
 * ASCII beside it stand at every place of a block of 16, between the bytes around 'A', 'Z', 'a' and
 * 'z'; a third of a long text is the whole text while that is short. */
TEST(langid_counts_the_letters_of_each_script) {
    static const char beside[] = "@AZ[`az{ 09";
    gw_langid *l = open_spec("builtin");
    for (int from = 0; from < 40; from++) {
        gw_str s = {0};
        int64_t greek = 0, latin = 0;
        for (int i = 0; i < 120; i++) {
            char c = i < from || i % 3 ? beside[(i + from) % 11] : 0;
            if (c)
                gw_str_add_char(&s, c);
            else
                gw_str_add(&s, "\xce\xb1\xce\xb2\xce\xb3");
            greek += c ? 0 : 6;
            latin += c && strchr("AZaz", c);
        }
        CHECK(s.len < 480); /* read whole */
        char lang[8];
        float score;
        gw_langid_detect(l, gw_str_c(&s), (int64_t)s.len, lang, &score);
        if (greek > latin) {
            CHECK_STR(lang, "el");
            CHECK_EQ(score == (float)greek / (float)(greek + latin) * 0.99f, true);
        }
        gw_str_release(&s);
    }
    gw_langid_free(l);
}
