#!/usr/bin/env python3
"""Reads an index file of version 2, as docs/format.md specifies it, and nothing else.

    reader.py FILE.tdx [PACKETS]

Checks every checksum, and prints JSON lines: one for each record in order of arrival, with its row,
its flow and the value of each field that has a column; one for each flow, with its packets, its
excess and its bytes; one for each mark. With the packet file, checks the packet sums, too. Whatever
the page does not allow ends the program with an error.
"""

import json
import struct
import sys

MAGIC = bytes.fromhex("895444580D0A1A0A")
SCHEMA, ROW_MAP, MARKS, NOTE, SUMS, FLOWS, COLUMN, VOLUMES = 1, 5, 7, 8, 9, 10, 11, 12
ONCE = {SCHEMA, ROW_MAP, FLOWS}
AT_MOST_ONCE = {MARKS, NOTE, SUMS, VOLUMES}
REFUSED = {2, 3, 4}
PACKETS, CONVERSATIONS, ENDS = 0, 1, 2


class Bad(Exception):
    """The file is not as the page says."""


def check(holds, what):
    if not holds:
        raise Bad(what)


# Numbers in bytes


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc_table()


def crc(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ CRC_TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def blocks_of(count, size):
    """How many blocks there are of so many things."""
    return -(-count // size)


class Bytes:
    """Reads bytes from front to back."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        check(self.at + count <= len(self.data), "bytes end too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def u8(self):
        return self.take(1)[0]

    def u16(self):
        return int.from_bytes(self.take(2), "little")

    def u32(self):
        return int.from_bytes(self.take(4), "little")

    def u64(self):
        return int.from_bytes(self.take(8), "little")

    def varint(self, bits=64):
        value, shift = 0, 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            check(value < 1 << bits, "varint is too long")
            if byte < 0x80:
                check(byte > 0 or shift == 0, "varint has more bytes than it takes")
                return value
            shift += 7

    def rest(self):
        return self.take(len(self.data) - self.at)

    def end(self, what):
        check(self.at == len(self.data), "bytes are left behind " + what)


def unzigzag(number):
    return number >> 1 if number % 2 == 0 else -(number + 1 >> 1)


def bit_at(data, bit):
    return data[bit // 8] >> bit % 8 & 1


def number_at(data, bit, bits):
    """The number in some bits, the least significant first."""
    check(bit + bits <= 8 * len(data), "bits end too early")
    whole = int.from_bytes(data[bit // 8 : (bit + bits + 7) // 8], "little")
    return whole >> bit % 8 & (1 << bits) - 1


# The file


def open_sections(data):
    """The sections of a file by their kind, each a list of byte strings."""
    check(len(data) >= 64 + 40, "file is too short")
    check(data[:8] == MAGIC, "header: magic")
    check(crc(data[:60]) == struct.unpack_from("<I", data, 60)[0], "header: CRC")
    check(struct.unpack_from("<H", data, 8)[0] == 2, "header: version")
    check(not any(data[10:60]), "header: reserved bytes")
    footer = data[-40:]
    directory, directory_len, file_len, directory_crc, footer_crc = struct.unpack_from(
        "<QQQII", footer
    )
    check(footer[32:] == MAGIC, "footer: magic")
    check(crc(footer[:28]) == footer_crc, "footer: CRC")
    check(file_len == len(data), "footer: file length")
    check(directory + directory_len == len(data) - 40, "footer: directory")
    check(directory >= 64, "footer: directory")
    listed = Bytes(data[directory : len(data) - 40])
    check(crc(listed.data) == directory_crc, "directory: CRC")
    sums_crc = listed.u32()
    sections, at = {}, 64
    for _ in range(listed.varint()):
        kind, length = listed.varint(), listed.varint()
        kind, required = kind >> 1, kind & 1
        check(kind < 65536, "directory: kind")
        known = kind in ONCE | AT_MOST_ONCE | {COLUMN}
        check(not required, "directory: required section")
        check(kind not in REFUSED, "directory: kind of version 1")
        check(at + length <= directory, "directory: length")
        if known:
            sections.setdefault(kind, []).append(data[at : at + length])
        at += length
    listed.end("the directory")
    for kind in ONCE:
        check(len(sections.get(kind, [])) == 1, "one section of kind %d" % kind)
    for kind in AT_MOST_ONCE:
        check(len(sections.get(kind, [])) < 2, "sections of kind %d" % kind)
    check(SUMS not in sections or MARKS in sections, "packet sums without marks")
    sums = data[at:directory]
    check(len(sums) == 4 * blocks_of(at, 4096), "checksums: length")
    check(crc(sums) == sums_crc, "checksums: CRC")
    for block in range(len(sums) // 4):
        start = 4096 * block
        stored = struct.unpack_from("<I", sums, 4 * block)[0]
        check(crc(data[start : min(start + 4096, at)]) == stored, "CRC of block %d" % block)
    return sections


class Column:
    def __init__(self, read):
        self.of, self.width, self.form, self.parameter = read.take(4)
        check(self.of <= ENDS and 1 <= self.width <= 16, "schema: column")
        check(self.form in (0, 1) or 129 <= self.form <= 137, "schema: form")
        check(self.parameter == 0 or self.form == 136, "schema: parameter")
        self.names = []
        for _ in range(2 if self.of == ENDS else 1):
            name = read.take(read.u8()).decode("utf-8")
            check(name, "schema: name")
            self.names.append(name)
        self.has_first_bytes = self.of == ENDS and self.width in (4, 16)


class Schema:
    def __init__(self, data):
        read = Bytes(data)
        self.packets, self.conversations = read.varint(32), read.varint(32)
        check(self.conversations <= min(self.packets, 1 << 30), "schema: conversations")
        check((self.packets == 0) == (self.conversations == 0), "schema: conversations")
        self.columns = [Column(read) for _ in range(read.varint(32))]
        read.end("the schema")
        names = [name for column in self.columns for name in column.names]
        check(len(set(names)) == len(names), "schema: second column of a name")

    def entries(self, of):
        return [self.packets, self.conversations, 2 * self.conversations][of]


# Packed numbers


def packed_block(read, count):
    """The numbers of a block."""
    head = read.u8()
    kind, bits = head >> 6, head & 63
    check(bits <= 32, "packed: bits")
    few, patches, step = [], [], 0
    if kind == 1:
        others = read.u8()
        check(others < 16, "packed: few are too many")
        few.append(read.varint(32))
        for _ in range(others):
            few.append(few[-1] + read.varint(32) + 1)
    else:
        least = read.varint(32)
        if kind == 2:
            step = read.varint(32)
        if kind == 3:
            patches = [(read.u8(), read.varint(32)) for _ in range(read.u8() + 1)]
    plane_len = blocks_of(count, 8)
    parts = [0] * count
    for bit in range(bits):
        plane = read.take(plane_len)
        for i in range(count):
            parts[i] |= bit_at(plane, i) << bit
        check(all(not bit_at(plane, i) for i in range(count, 8 * plane_len)), "packed: unused bits")
    if kind == 1:
        check(all(part < len(few) for part in parts), "packed: place of a number")
        numbers = [few[part] for part in parts]
    elif kind == 2:
        check(parts[0] == 0, "packed: first part")
        numbers = [least]
        for part in parts[1:]:
            numbers.append(numbers[-1] + step + part)
    else:
        before = -1
        for place, part in patches:
            check(before < place < count and parts[place] == 0, "packed: place of a patch")
            parts[place], before = part, place
        numbers = [least + part for part in parts]
    check(all(number < 1 << 32 for number in numbers), "packed: number of more than 32 bits")
    return numbers


def long_block(read, count):
    """Numbers of 64 bits: first what they are modulo 2^32, then divided by it."""
    low, high = packed_block(read, count), packed_block(read, count)
    return [h << 32 | l for l, h in zip(low, high)]


def starts_of(read, blocks):
    """The starts of all blocks but the first; that of the first is 0."""
    return [0] + [read.u32() for _ in range(blocks - 1)] if blocks else []


def packed_list(data, count):
    read = Bytes(data)
    blocks = blocks_of(count, 128)
    starts = starts_of(read, blocks_of(blocks, 64))
    first, numbers = read.at, []
    for block in range(blocks):
        if block % 64 == 0:
            check(read.at - first == starts[block // 64], "packed: start")
        numbers += packed_block(read, min(128, count - 128 * block))
    read.end("packed numbers")
    return numbers


# Codecs


def words_of(data):
    check(len(data) % 4 == 0, "bitmap: length")
    return struct.unpack("<%dI" % (len(data) // 4), data)


def wah(data):
    rows, group = [], 0
    for word in words_of(data):
        if word >> 31:
            count = word & (1 << 30) - 1
            check(count > 0, "wah: fill of no groups")
            if word >> 30 & 1:
                rows += range(31 * group, 31 * (group + count))
            group += count
        else:
            rows += [31 * group + j for j in range(31) if word >> (30 - j) & 1]
            group += 1
    return rows


def masc(data):
    rows, at = [], 0
    for word in words_of(data):
        kind, rest = word >> 30, word & 31
        check(kind != 2 and rest < 31, "masc: word")
        if kind == 1:
            carried = word >> 25 & 31
            at += 31 * (word >> 5 & (1 << 20) - 1) + rest
            rows += range(at, at + carried)
            at += carried
        else:
            count = 31 * (word >> 5 & (1 << 25) - 1) + rest
            if kind == 3:
                rows += range(at, at + count)
            at += count
    return rows


def roaring(data):
    read = Bytes(data)
    cookie = read.u32()
    if cookie & 0xFFFF == 12347:
        count = (cookie >> 16) + 1
        flags = read.take(blocks_of(count, 8))
        is_run = [bit_at(flags, i) for i in range(count)]
        has_offsets = count >= 4
    else:
        check(cookie == 12346, "roaring: cookie")
        count = read.u32()
        check(count <= 65536, "roaring: containers")
        is_run, has_offsets = [0] * count, True
    containers = [(read.u16(), read.u16() + 1) for _ in range(count)]
    offsets = [read.u32() for _ in range(count)] if has_offsets else None
    rows = []
    for i, (key, ids) in enumerate(containers):
        check(offsets is None or offsets[i] == read.at, "roaring: offset")
        if is_run[i]:
            low = []
            for _ in range(read.u16()):
                first, more = read.u16(), read.u16()
                low += range(first, first + more + 1)
        elif ids <= 4096:
            low = [read.u16() for _ in range(ids)]
        else:
            bits = read.take(8192)
            low = [p for p in range(65536) if bit_at(bits, p)]
        check(len(low) == ids, "roaring: number of ids")
        rows += [key << 16 | p for p in low]
    read.end("a bitmap")
    return rows


CODECS = {1: wah, 7: masc, 9: roaring}


# Columns


def dictionary(data, count, width):
    if width <= 2 and 8 * count >= 256**width:
        check(len(data) == 256**width // 8, "dictionary: bits")
        values = [value for value in range(256**width) if bit_at(data, value)]
        check(len(values) == count, "dictionary: number of values")
        return values
    read = Bytes(data)
    blocks = blocks_of(count, 64)
    heads = [int.from_bytes(read.take(width), "little") for _ in range(blocks)]
    starts = starts_of(read, blocks)
    first, values = read.at, []
    for block, head in enumerate(heads):
        check(read.at - first == starts[block], "dictionary: start")
        values.append(head)
        for _ in range(min(64, count - 64 * block) - 1):
            values.append(values[-1] + read.varint(128) + 1)
    read.end("a dictionary")
    check(all(a < b for a, b in zip(values, values[1:])), "dictionary: order")
    check(not values or values[-1] < 1 << 8 * width, "dictionary: value")
    return values


def groups(read, left):
    """Differences in groups of 64."""
    while left > 0:
        group = min(64, left)
        if group < 8:
            yield from [read.varint() for _ in range(group)]
        else:
            bits = read.u8()
            check(bits <= 32, "list: bits")
            packed = read.take(blocks_of(group * bits, 8))
            yield from [number_at(packed, i * bits, bits) for i in range(group)]
        left -= group


def one_list(read):
    """The entries of a value; None if it has bits."""
    head = read.varint()
    if head % 2 == 0:
        return [head // 2]
    kind = head // 2
    if kind == 0:
        return None
    if kind < 8:
        entries = [read.varint()]
        gaps = [read.varint() for _ in range(kind)]
    else:
        read = Bytes(read.take(kind - 8))
        left = read.varint() + 8
        entries = [read.varint()]
        gaps = list(groups(read, left))
        read.end("a list")
    for gap in gaps:
        entries.append(entries[-1] + gap + 1)
    return entries


def lists_of(data, values, entries):
    """The entries of each value."""
    read = Bytes(data)
    with_bits = [read.varint() for _ in range(read.varint())]
    size = blocks_of(entries, 8)
    data, start = read.rest(), 0
    end = len(data) - size * len(with_bits)
    check(end >= 0, "lists: bits")
    found = strings(data[:end], values, one_list)
    check([i for i, some in enumerate(found) if some is None] == with_bits, "lists: bits")
    for value in with_bits:
        bits = data[end + start : end + start + size]
        found[value] = [entry for entry in range(entries) if bit_at(bits, entry)]
        check(len(found[value]) == sum(bin(byte).count("1") for byte in bits), "lists: last bits")
        start += size
    return found


def strings(data, values, read_one):
    """What lies one behind the other for each value, in blocks of 64."""
    read = Bytes(data)
    starts = starts_of(read, blocks_of(values, 64))
    first, found = read.at, []
    for value in range(values):
        if value % 64 == 0:
            check(read.at - first == starts[value // 64], "start of a block of lists")
        found.append(read_one(read))
    read.end("lists")
    return found


def ids_of_lists(lists, entries):
    ids = [None] * entries
    for value, some in enumerate(lists):
        check(some, "value without entries")
        for entry in some:
            check(entry < entries and ids[entry] is None, "entry with two values")
            ids[entry] = value
    return ids


def ids_of(data, form, count, entries, implied):
    """The id of each entry's value."""
    if form == 0:
        ids = ids_of_lists(lists_of(data, count, entries), entries)
    elif form == 1:
        ids = packed_list(data, entries)
        check(set(ids) == set(range(count)), "packed: ids")
    else:
        codec = CODECS.get(form - 128)
        check(codec, "codec %d is not known to this reader" % (form - 128))
        bitmaps = strings(data, count, lambda read: read.take(read.varint()))
        left_out = [i for i, bitmap in enumerate(bitmaps) if not bitmap]
        check(len(left_out) == (1 if implied else 0), "number of bitmaps that are left out")
        lists = [codec(bitmap) if bitmap else None for bitmap in bitmaps]
        if implied:
            others = {entry for some in lists if some for entry in some}
            lists[left_out[0]] = [entry for entry in range(entries) if entry not in others]
        ids = ids_of_lists(lists, entries)
    check(None not in ids, "entry without a value")
    return ids


def column_values(data, column, entries):
    """The value of each entry of a column."""
    read = Bytes(data)
    count, dictionary_len = read.varint(), read.varint()
    first_bytes_len = read.varint() if column.has_first_bytes else 0
    check(count <= entries and (count > 0 or entries == 0), "column: number of values")
    values = dictionary(read.take(dictionary_len), count, column.width)
    first_bytes = read.take(first_bytes_len)
    data = read.rest()
    ids = ids_of(data, column.form, count, entries, column.of == PACKETS and count > 1)
    found = [values[i] for i in ids]
    if column.has_first_bytes:
        read = Bytes(first_bytes)
        form, _, last = read.u8(), read.u8(), read.u8()
        check(form != 1, "first bytes: form")
        bytes_there = read.take(last + 1)
        check(list(bytes_there) == sorted(set(bytes_there)), "first bytes: order")
        ids = ids_of(read.rest(), form, last + 1, entries, False)
        shift = 8 * (column.width - 1)
        check([bytes_there[i] for i in ids] == [v >> shift for v in found], "first bytes")
    return found


# Flows


def flow_packets(data, conversations, packets):
    """How many packets each flow has."""
    read = Bytes(data)
    blocks = blocks_of(conversations, 128)
    heads = [(0, 0)] + [(read.u32(), read.u32()) for _ in range(blocks - 1)]
    start, row, found = read.at, 0, []
    for block in range(blocks):
        check((row, read.at - start) == heads[block], "flows: first row and start")
        count = min(128, conversations - 128 * block)
        together, firsts = packed_block(read, count), packed_block(read, count)
        for both, first in zip(together, firsts):
            check(first <= both + 1, "flows: packets of the first flow")
            found += [first, both + 1 - first]
            row += both + 1
    read.end("flows")
    check(row == packets, "flows: packets")
    return found


def flow_excess(data, conversations):
    read = Bytes(data)
    blocks = blocks_of(conversations, 128)
    starts = starts_of(read, blocks)
    first, found = read.at, []
    for block in range(blocks):
        check(read.at - first == starts[block], "bytes of flows: start")
        count = min(128, conversations - 128 * block)
        firsts, seconds = long_block(read, count), long_block(read, count)
        for pair in zip(firsts, seconds):
            found += pair
    read.end("bytes of flows")
    return found


def class_start(number):
    """The least length of a class."""
    if number == 0:
        return 0
    return (4 + (number - 1) % 4) << 2 + (number - 1) // 4


# Row map


def prefix_code(lengths):
    """The symbol of each code, by the length and the bits of the code as a number, the first bit
    being the most significant."""
    check(all(length <= 10 for length in lengths), "row map: length of a code")
    check(sum(1024 >> length for length in lengths if length) <= 1024, "row map: codes")
    symbols = sorted((length, symbol) for symbol, length in enumerate(lengths) if length)
    codes, code, before = {}, -1, 0
    for length, symbol in symbols:
        code = code + 1 << length - before
        codes[length, code] = symbol
        before = length
    return codes


def row_map(data, packets, flows):
    """The record of each row; `flows` is the flow of each row."""
    read = Bytes(data)
    w = max(packets - 1, 0).bit_length()
    nibbles = []
    for byte in read.take(8 * (w + 1)):
        nibbles += [byte & 15, byte >> 4]
    symbols = 2 * (w + 1)
    codes = [prefix_code(nibbles[symbols * c : symbols * (c + 1)]) for c in range(8)]
    blocks = blocks_of(packets, 256)
    groups = [read.u32() for _ in range(blocks_of(blocks, 32))]
    starts = [groups[block // 32] + read.u16() for block in range(blocks)]
    data = read.rest()
    check(starts[:1] in ([], [0]) and (blocks or not data), "row map: first block")
    records = []
    for block in range(blocks):
        end = starts[block + 1] if block + 1 < blocks else len(data)
        check(starts[block] <= end <= len(data), "row map: start of a block")
        bits = data[starts[block] : end]
        first_row, at = 256 * block, w
        anchor = number_at(bits, 0, w)
        records.append(anchor)
        n = None
        for row in range(first_row + 1, min(first_row + 256, packets)):
            flow, before = flows[row], flows[row - 1]
            base = records[-1]
            if flow != before:
                base = anchor
                context = 1 if flow // 2 == before // 2 else 0
            elif row == 1 or flows[row - 2] != flow:
                context = 2
            elif n is None:
                context = 3
            else:
                context = min(4 + n // 4, 7) if n > 0 else 3
            code, length = 0, 0
            while (length, code) not in codes[context]:
                check(length < 10, "row map: no such code")
                code, length = code << 1 | number_at(bits, at, 1), length + 1
                at += 1
            symbol = codes[context][length, code]
            n = symbol // 2
            step = 0
            if n > 0:
                step = 1 << n - 1 | number_at(bits, at, n - 1)
                at += n - 1
            record = base - step - 1 if symbol % 2 else base + step + 1
            check(0 <= record < packets, "row map: record")
            records.append(record)
            if context == 0:
                anchor = record
        check(len(bits) == blocks_of(at, 8), "row map: end of a block")
        check(number_at(bits, at, 8 * len(bits) - at) == 0, "row map: unused bits")
    check(sorted(records) == list(range(packets)), "row map: each record once")
    return records


# Marks and packet sums


def read_marks(data, packets):
    read = Bytes(data)
    unit = read.u8()
    check(unit <= 9, "marks: unit")
    count = blocks_of(packets, 32)
    starts = starts_of(read, blocks_of(count, 128))
    first, marks = read.at, []
    for block, start in enumerate(starts):
        check(read.at - first == start, "marks: start")
        offset, latest = read.varint(), read.varint()
        some = min(128, count - 128 * block)
        lists = [long_block(read, some) for _ in range(3)]
        for i, (more, gap, span) in enumerate(zip(*lists)):
            check((more == 0) == (i == 0) and (i > 0 or gap == 0), "marks: first of a block")
            offset, earliest = offset + more, (latest + unzigzag(gap)) % 2**64
            latest = earliest + span
            check(latest * 10**unit < 1 << 64, "marks: time")
            check(not marks or marks[-1][0] < offset, "marks: order")
            marks.append((offset, earliest * 10**unit, latest * 10**unit))
    read.end("marks")
    return marks


def check_sums(data, marks, packets):
    """Checks the packet sums against the bytes of the packet file, if they are given."""
    read = Bytes(data)
    start, end = read.u64(), read.u64()
    borders = [start] + [mark[0] for mark in marks] + [end]
    check(borders == sorted(borders), "packet sums: start and end")
    for a, b in zip(borders, borders[1:]):
        stored = read.u32()
        check(packets is None or crc(packets[a:b]) == stored, "packet sums: CRC")
    read.end("packet sums")


def main(path, packets_path=None):
    with open(path, "rb") as file:
        sections = open_sections(file.read())
    schema = Schema(sections[SCHEMA][0])
    columns = sections.get(COLUMN, [])
    check(len(columns) == len(schema.columns), "number of columns")
    check(all(len(note) <= 1 << 24 for note in sections.get(NOTE, [])), "note: length")
    for note in sections.get(NOTE, []):
        note.decode("utf-8")
    packets = flow_packets(sections[FLOWS][0], schema.conversations, schema.packets)
    flow_of = [flow for flow, count in enumerate(packets) for _ in range(count)]
    records = row_map(sections[ROW_MAP][0], schema.packets, flow_of)

    # The value of each field in each row.
    fields = {}
    for column, data in zip(schema.columns, columns):
        values = column_values(data, column, schema.entries(column.of))
        if column.of == PACKETS:
            fields[column.names[0]] = values
        elif column.of == CONVERSATIONS:
            fields[column.names[0]] = [values[flow // 2] for flow in flow_of]
        else:
            ends = [flow // 2 + schema.conversations * (flow % 2) for flow in flow_of]
            others = [flow // 2 + schema.conversations * (1 - flow % 2) for flow in flow_of]
            fields[column.names[0]] = [values[entry] for entry in ends]
            fields[column.names[1]] = [values[entry] for entry in others]

    rows = sorted(range(schema.packets), key=lambda row: records[row])
    for record, row in enumerate(rows):
        line = {"record": record, "row": row, "flow": flow_of[row]}
        line.update((name, values[row]) for name, values in fields.items())
        print(json.dumps(line))
    excess = None
    if VOLUMES in sections:
        excess = flow_excess(sections[VOLUMES][0], schema.conversations)
        total = list(excess)
        for flow, number in zip(flow_of, fields["length"]):
            total[flow] += class_start(number)
    for flow, count in enumerate(packets):
        line = {"flow": flow, "packets": count}
        if excess is not None:
            line.update(excess=excess[flow], bytes=total[flow])
        print(json.dumps(line))
    marks = read_marks(sections[MARKS][0], schema.packets) if MARKS in sections else []
    for number, (offset, earliest, latest) in enumerate(marks):
        line = {"mark": number, "offset": offset, "time_min": earliest, "time_max": latest}
        print(json.dumps(line))
    if SUMS in sections:
        content = None
        if packets_path is not None:
            with open(packets_path, "rb") as file:
                content = file.read()
        check_sums(sections[SUMS][0], marks, content)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except Bad as error:
        sys.exit("%s: %s" % (sys.argv[1], error))
