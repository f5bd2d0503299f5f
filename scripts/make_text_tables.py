#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Writes the tables of src/data/text that come from public standards, out of Python's own copies:
# encoding_tables.def (single-byte encodings) and html_entities.def (character references of HTML).
#
#   scripts/make_text_tables.py [DIR]      DIR defaults to src/data/text
import html.entities
import os
import sys

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(TOP, "src", "data", "text")

# Name here, codec of Python. In windows-* and others a byte without a character in the codec is the
# C1 control of the same number where the Encoding Standard's index says so; elsewhere it is none.
SINGLE = [
    ("IBM866", "cp866"), ("ISO8859_2", "iso8859_2"), ("ISO8859_3", "iso8859_3"),
    ("ISO8859_4", "iso8859_4"), ("ISO8859_5", "iso8859_5"), ("ISO8859_6", "iso8859_6"),
    ("ISO8859_7", "iso8859_7"), ("ISO8859_8", "iso8859_8"), ("ISO8859_10", "iso8859_10"),
    ("ISO8859_13", "iso8859_13"), ("ISO8859_14", "iso8859_14"), ("ISO8859_15", "iso8859_15"),
    ("ISO8859_16", "iso8859_16"), ("KOI8_R", "koi8_r"), ("KOI8_U", "koi8_u"),
    ("MACINTOSH", "mac_roman"), ("WINDOWS_874", "cp874"), ("WINDOWS_1250", "cp1250"),
    ("WINDOWS_1251", "cp1251"), ("WINDOWS_1252", "cp1252"), ("WINDOWS_1253", "cp1253"),
    ("WINDOWS_1254", "cp1254"), ("WINDOWS_1255", "cp1255"), ("WINDOWS_1256", "cp1256"),
    ("WINDOWS_1257", "cp1257"), ("WINDOWS_1258", "cp1258"), ("X_MAC_CYRILLIC", "mac_cyrillic"),
]
# What the Encoding Standard maps otherwise than Python.
STANDARD = {
    ("KOI8_U", 0xAE): 0x45E, ("KOI8_U", 0xBE): 0x40E,
    ("WINDOWS_1255", 0xCA): 0x5BA,
    ("X_MAC_CYRILLIC", 0xFF): 0x20AC,
}


def single(name, codec):
    row = []
    for byte in range(128, 256):
        try:
            cp = ord(bytes([byte]).decode(codec))
        except UnicodeDecodeError:
            cp = byte if byte < 0xA0 and name.startswith("WINDOWS") else 0
        row.append(STANDARD.get((name, byte), cp))
    return row


def write(name, lines):
    with open(os.path.join(OUT, name), "w", encoding="ascii") as f:
        f.write("// SPDX-License-Identifier: Apache-2.0\n// Written by scripts/make_text_tables.py.\n")
        f.write("\n".join(lines) + "\n")


def encodings():
    lines = []
    for name, codec in SINGLE:
        row = single(name, codec)
        lines.append(f"ROW(GW_ENC_{name},")
        for i in range(0, 128, 16):
            end = ")" if i == 112 else ","
            lines.append("    " + ",".join(f"0x{c:x}" for c in row[i:i + 16]) + end)
    write("encoding_tables.def", lines)


def entities():
    lines, line = [], ""
    for name in sorted(html.entities.html5):
        cps = [ord(c) for c in html.entities.html5[name]]
        cps += [0] * (2 - len(cps))
        item = f'E("{name}",0x{cps[0]:x},0x{cps[1]:x})'
        if len(line) + len(item) > 98:
            lines.append(line)
            line = ""
        line += item
    write("html_entities.def", lines + [line])


encodings()
entities()
