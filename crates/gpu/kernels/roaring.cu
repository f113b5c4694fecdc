// Roaring, the public format: a header, and then a container for each chunk of 65,536 rows, as an
// array, as a bitset or as runs, whichever is the smallest.

#include "threads.cuh"
#include "piece.cuh"

static const u32 CHUNK_ROWS = 1u << 16;
static const u32 ARRAY_MAX = 4096;
static const u32 BITSET_BYTES = CHUNK_ROWS / 8;
static const u32 COOKIE = 12346;
static const u32 RUN_COOKIE = 12347;
// With this many containers or more, a header with runs has offsets.
static const u32 OFFSETS_FROM = 4;

enum ContainerKind { ARRAY, BITSET, RUNS };

struct Form {
    ContainerKind kind;
    u32 rows;
    u32 runs;
    u32 bytes;
};

DEVICE Form form_of(const Container *containers, u32 at) {
    Form form;
    form.rows = containers[at + 1].rows_before - containers[at].rows_before;
    form.runs = containers[at + 1].piece - containers[at].piece;
    u32 run_bytes = 2 + 4 * form.runs;
    form.kind = form.rows <= ARRAY_MAX ? ARRAY : BITSET;
    form.bytes = form.kind == ARRAY ? 2 * form.rows : BITSET_BYTES;
    if (run_bytes < form.bytes) {
        form.kind = RUNS;
        form.bytes = run_bytes;
    }
    return form;
}

// The bytes of a key's header.
DEVICE u32 header_bytes(u32 containers, bool has_runs) {
    if (!has_runs) return 8 + 8 * containers;
    u32 offsets = containers >= OFFSETS_FROM ? 4 * containers : 0;
    return 4 + (containers + 7) / 8 + 4 * containers + offsets;
}

// Bitmaps follow each other without gaps, so numbers may be unaligned.
DEVICE void store16(u8 *target, u32 at, u32 value) {
    if (at % 2 == 0) {
        *(u16 *)(target + at) = (u16)value;
    } else {
        target[at] = (u8)value;
        target[at + 1] = (u8)(value >> 8);
    }
}

DEVICE void store32(u8 *target, u32 at, u32 value) {
    if (at % 4 == 0) {
        *(u32 *)(target + at) = value;
    } else {
        store16(target, at, value & 0xFFFF);
        store16(target, at + 2, value >> 16);
    }
}

// The bytes of each container, 0 for the one that marks the end, and which keys have runs.
KERNEL roaring_sizes(const Container *containers, const u32 *count, u32 *sizes, u32 *key_has_runs) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at > *count) return;
    if (at == *count) {
        sizes[at] = 0;
        return;
    }
    Form form = form_of(containers, at);
    sizes[at] = form.bytes;
    if (form.kind == RUNS) key_has_runs[containers[at].key] = 1;
}

// Where the bitmap of each key starts, and last where they all end; `places` are the running sums
// of the containers' bytes. One block.
KERNEL roaring_keys(const u32 *key_containers, const u32 *keys_count, const u32 *key_has_runs,
                    const u32 *places, u32 *key_bytes, u32 *total) {
    __shared__ u32 room[32];
    u32 keys = *keys_count;
    u32 headers = 0;
    // Four keys a thread.
    for (u32 first = 0; first < keys; first += 4 * blockDim.x) {
        u32 key = first + 4 * threadIdx.x;
        u32 sizes[4];
        u32 sum = 0;
        for (u32 i = 0; i < 4; i++) {
            sizes[i] = 0;
            if (key + i < keys)
                sizes[i] = header_bytes(key_containers[key + i + 1] - key_containers[key + i],
                                        key_has_runs[key + i]);
            sum += sizes[i];
        }
        u32 all;
        u32 before = headers + block_sum_before(sum, room, &all);
        for (u32 i = 0; i < 4 && key + i < keys; i++) {
            key_bytes[key + i] = before + places[key_containers[key + i]];
            before += sizes[i];
        }
        headers += all;
    }
    if (threadIdx.x == 0) {
        u32 end = headers + places[key_containers[keys]];
        key_bytes[keys] = end;
        *total = end;
    }
}

// Writes each container's entries in the headers, and replaces its place by where its bytes start.
KERNEL roaring_headers(const Container *containers, const u32 *count, const u32 *key_containers,
                       const u32 *key_has_runs, const u32 *key_bytes, const u32 *places,
                       u32 *starts, u8 *target) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= *count) return;
    Container container = containers[at];
    u32 first = key_containers[container.key];
    u32 len = key_containers[container.key + 1] - first;
    bool has_runs = key_has_runs[container.key];
    u32 base = key_bytes[container.key];
    u32 number = at - first;
    u32 start = base + header_bytes(len, has_runs) + places[at] - places[first];
    starts[at] = start;
    u32 flags = has_runs ? (len + 7) / 8 : 0;
    if (number == 0) {
        store32(target, base, has_runs ? RUN_COOKIE | (len - 1) << 16 : COOKIE);
        if (!has_runs) store32(target, base + 4, len);
    }
    if (has_runs && number % 8 == 0) {
        u32 bits = 0;
        for (u32 i = 0; i < 8 && number + i < len; i++)
            bits |= (u32)(form_of(containers, at + i).kind == RUNS) << i;
        target[base + 4 + number / 8] = (u8)bits;
    }
    u32 described = base + (has_runs ? 4 + flags : 8);
    Form form = form_of(containers, at);
    store16(target, described + 4 * number, container.chunk);
    store16(target, described + 4 * number + 2, form.rows - 1);
    if (!has_runs || len >= OFFSETS_FROM)
        store32(target, described + 4 * len + 4 * number, start - base);
    if (form.kind == RUNS) store16(target, start, form.runs);
}

// Writes the rows of each piece. The bytes of bitsets are 0. A word at the end of a bitset may hold
// bytes of the next container, which other threads store at the same time; the bits set here are
// not among those.
KERNEL roaring_rows(const Piece *pieces, const u32 *count, const Container *containers,
                    const u32 *starts, u8 *target) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    u64 from = 1;
    u64 to = 0;
    if (at < *count) {
        Piece piece = pieces[at];
        Form form = form_of(containers, piece.container);
        Container container = containers[piece.container];
        u32 start = starts[piece.container];
        u32 row = piece.start % CHUNK_ROWS;
        u32 len = piece.end - piece.start + 1;
        if (form.kind == RUNS) {
            u32 place = start + 2 + 4 * (at - container.piece);
            store16(target, place, row);
            store16(target, place + 2, len - 1);
        } else if (form.kind == ARRAY) {
            u32 place = start + 2 * (piece.rows_before - container.rows_before);
            for (u32 i = 0; i < len; i++) store16(target, place + 2 * i, row + i);
        } else {
            from = (u64)start * 8 + row;
            to = from + len - 1;
        }
    }
    set_bits((u32 *)target, from, to);
}
