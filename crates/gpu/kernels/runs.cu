// From a column to its runs, sorted by digit.
//
// The column is a list of digits, one for each row or one for each of the runs that the caller
// knows; `starts` says where those begin, or is null. A *head* is an element that differs from the
// one before it: a maximal run starts there. Heads are counted by digit in each tile of the list,
// the counts are summed up digit by digit, and then every tile sorts its heads in shared memory and
// writes them where they belong. Rows stay in order, so a digit's runs ascend.
//
// Digits of 16 bits take two such passes, the low byte first.

#include "threads.cuh"
#include "run.cuh"
#include "sort.cuh"

// In `first_heads`: the tile has none.
static const u32 NONE = 0xFFFFFFFFu;

// What the threads of a block share while they sort the heads of a tile.
template <class Digit> struct SortingHeads : Sorting<Digit> {
    u32 heads[TILE / 32];
    u32 next_head;
};

DEVICE u32 bucket_of(u8 digit) { return digit; }
DEVICE u32 bucket_of(u16 digit) { return digit & 0xFF; }

template <class Digit> DEVICE bool is_head(const Digit *digits, u32 at) {
    return at == 0 || digits[at] != digits[at - 1];
}

// Sixteen bytes of digits at a time. After the list there is room for that.
template <class Digit> struct Wide {
    static const u32 LEN = 16 / sizeof(Digit);
    Digit digits[LEN];
    Digit before;

    DEVICE_METHOD void load(const Digit *list, u32 at) {
        uint4 bits = *(const uint4 *)(list + at);
        u32 words[4] = {bits.x, bits.y, bits.z, bits.w};
        for (u32 i = 0; i < LEN; i++)
            digits[i] = (Digit)(words[i * sizeof(Digit) / 4] >> (8 * (i * sizeof(Digit) % 4)));
        before = at == 0 ? (Digit)~digits[0] : list[at - 1];
    }

    // One bit for each that is a head and below `len`.
    DEVICE_METHOD u32 heads(u32 at, u32 len) const {
        u32 found = 0;
        for (u32 i = 0; i < LEN; i++)
            found |= (u32)(digits[i] != (i == 0 ? before : digits[i - 1])) << i;
        return at + LEN <= len ? found : at >= len ? 0 : found & ((1u << (len - at)) - 1);
    }
};

// Counts the heads of each tile by bucket, and notes where the first one is.
template <class Digit>
DEVICE void count_heads(const Digit *list, u32 len, u32 tiles, u32 *counts, u32 *first_heads) {
    __shared__ u32 counted[BUCKETS];
    __shared__ u32 first;
    counted[threadIdx.x] = 0;
    if (threadIdx.x == 0) first = NONE;
    __syncthreads();
    u32 base = blockIdx.x * TILE;
    u32 lowest = NONE;
    for (u32 at = base + threadIdx.x * Wide<Digit>::LEN; at < base + TILE && at < len;
         at += THREADS * Wide<Digit>::LEN) {
        Wide<Digit> wide;
        wide.load(list, at);
        u32 heads = wide.heads(at, len);
        if (heads != 0 && lowest == NONE) lowest = at + __ffs(heads) - 1;
        if (heads == 0) continue;
        for (u32 i = 0; i < Wide<Digit>::LEN; i++)
            if (heads >> i & 1) atomicAdd(&counted[bucket_of(wide.digits[i])], 1u);
    }
    if (lowest != NONE) atomicMin(&first, lowest);
    __syncthreads();
    counts[(u64)threadIdx.x * tiles + blockIdx.x] = counted[threadIdx.x];
    if (threadIdx.x == 0) first_heads[blockIdx.x] = first;
}

KERNEL runs_count_u8(const u8 *list, u32 len, u32 tiles, u32 *counts, u32 *first_heads) {
    count_heads(list, len, tiles, counts, first_heads);
}

KERNEL runs_count_u16(const u16 *list, u32 len, u32 tiles, u32 *counts, u32 *first_heads) {
    count_heads(list, len, tiles, counts, first_heads);
}

// Where the first head after the tile is, or `len`. Called by one warp.
DEVICE u32 head_behind(const u32 *first_heads, u32 tiles, u32 len) {
    for (u32 tile = blockIdx.x + 1; tile < tiles; tile += 32) {
        u32 head = tile + lane_id() < tiles ? first_heads[tile + lane_id()] : NONE;
        u32 found = __ballot_sync(ALL_LANES, head != NONE);
        if (found != 0) return __shfl_sync(ALL_LANES, head, __ffs(found) - 1);
    }
    return len;
}

// Loads a tile, notes its heads and counts them by bucket, warp by warp.
template <class Digit>
DEVICE void load_tile(SortingHeads<Digit> &shared, const Digit *list, u32 base, u32 len) {
    clear_counts(shared);
    for (u32 i = threadIdx.x; i < TILE / 32; i += THREADS) shared.heads[i] = 0;
    __syncthreads();
    u32 start = warp_id() * WARP_TILE;
    for (u32 i = start + lane_id() * Wide<Digit>::LEN; i < start + WARP_TILE;
         i += 32 * Wide<Digit>::LEN) {
        u32 heads = 0;
        if (base + i < len) {
            Wide<Digit> wide;
            wide.load(list, base + i);
            heads = wide.heads(base + i, len);
            *(uint4 *)&shared.digits[i] = *(const uint4 *)(list + base + i);
            for (u32 k = 0; k < Wide<Digit>::LEN; k++) {
                u32 bucket = bucket_of(wide.digits[k]);
                if (heads >> k & 1)
                    count_one(shared, bucket);
            }
        }
        if (heads != 0) atomicOr(&shared.heads[i / 32], heads << (i & 31));
    }
}

// The first head after element `at` of the tile, as a place in the list.
template <class Digit> DEVICE u32 next_head(const SortingHeads<Digit> &shared, u32 base, u32 at) {
    at++;
    for (u32 word = at / 32; word < TILE / 32; word++) {
        u32 heads = shared.heads[word];
        if (word == at / 32) heads &= ALL_LANES << (at & 31);
        if (heads != 0) return base + word * 32 + __ffs(heads) - 1;
    }
    return shared.next_head;
}

// Writes the runs of a tile, sorted. `digits_out` is null if a digit has only one byte; then
// `firsts` gets where each digit's runs start.
template <class Digit>
DEVICE void scatter_heads(const Digit *list, u32 len, u32 tiles, const u32 *starts, u32 rows,
                          const u32 *offsets, const u32 *first_heads, uint2 *runs,
                          u16 *digits_out, u32 *firsts) {
    SHARED_BYTES(raw);
    SortingHeads<Digit> &shared = *(SortingHeads<Digit> *)raw;
    u32 base = blockIdx.x * TILE;
    load_tile(shared, list, base, len);
    if (threadIdx.x < 32) {
        u32 behind = head_behind(first_heads, tiles, len);
        if (threadIdx.x == 0) shared.next_head = behind;
    }
    __syncthreads();
    u32 total = place_buckets(shared, offsets, tiles);
    if (total == 0) return;
    for (u32 i = warp_id() * WARP_TILE; i < (warp_id() + 1) * WARP_TILE; i += 32) {
        u32 heads = shared.heads[i / 32];
        if (heads == 0) continue;
        bool takes = heads >> lane_id() & 1;
        u32 bucket = takes ? bucket_of(shared.digits[i + lane_id()]) : 0;
        u32 place = next_place(shared, takes, bucket);
        if (takes) shared.sorted[place] = (u16)(i + lane_id());
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < total; i += THREADS) {
        u32 at = shared.sorted[i];
        Digit digit = shared.digits[at];
        u32 target = shared.targets[bucket_of(digit)] + i;
        u32 head = base + at;
        u32 behind = next_head(shared, base, at);
        u32 start = starts ? starts[head] : head;
        u32 end = (behind == len ? rows : starts ? starts[behind] : behind) - 1;
        if (digits_out) {
            digits_out[target] = digit;
        } else if (target == offsets[(u64)digit * tiles]) {
            firsts[digit] = target;
            start |= FIRST_OF_KEY;
        }
        runs[target] = make_uint2(start, end);
    }
}

KERNEL runs_scatter_u8(const u8 *list, u32 len, u32 tiles, const u32 *starts, u32 rows,
                       const u32 *offsets, const u32 *first_heads, uint2 *runs, u32 *firsts) {
    scatter_heads(list, len, tiles, starts, rows, offsets, first_heads, runs, (u16 *)0, firsts);
}

KERNEL runs_scatter_u16(const u16 *list, u32 len, u32 tiles, const u32 *starts, u32 rows,
                        const u32 *offsets, const u32 *first_heads, uint2 *runs,
                        u16 *digits_out) {
    scatter_heads(list, len, tiles, starts, rows, offsets, first_heads, runs, digits_out,
                  (u32 *)0);
}

// The second pass moves whole runs through shared memory, in smaller tiles.
static const u32 HIGH_TILE = 4096;
static const u32 HIGH_WARP_TILE = HIGH_TILE / WARPS;

struct SortingRuns {
    uint2 runs[HIGH_TILE];
    u16 digits[HIGH_TILE];
    u32 counts[WARPS * BUCKETS / 2];
    u32 targets[BUCKETS];
    u32 room[32];
};

// Counts the runs of each tile by the high byte of their digits.
KERNEL runs_count_high(const u16 *digits, const u32 *count, u32 tiles, u32 *counts) {
    __shared__ u32 counted[BUCKETS];
    counted[threadIdx.x] = 0;
    __syncthreads();
    u32 len = *count;
    u32 base = blockIdx.x * HIGH_TILE;
    // Eight at a time; the digits have room for that.
    for (u32 i = 8 * threadIdx.x; i < HIGH_TILE && base + i < len; i += 8 * THREADS) {
        uint4 bits = *(const uint4 *)(digits + base + i);
        u32 words[4] = {bits.x, bits.y, bits.z, bits.w};
        for (u32 k = 0; k < 8; k++) {
            u32 high = words[k / 2] >> (16 * (k & 1) + 8) & 0xFF;
            if (base + i + k < len) atomicAdd(&counted[high], 1u);
        }
    }
    __syncthreads();
    counts[(u64)threadIdx.x * tiles + blockIdx.x] = counted[threadIdx.x];
}

// Sorts the runs by the high byte of their digits.
KERNEL runs_scatter_high(const uint2 *runs, const u16 *digits, const u32 *count, u32 tiles,
                         const u32 *offsets, uint2 *runs_out, u16 *digits_out) {
    SHARED_BYTES(raw_high);
    SortingRuns &shared = *(SortingRuns *)raw_high;
    u32 len = *count;
    u32 base = blockIdx.x * HIGH_TILE;
    if (base >= len) return;
    clear_counts(shared);
    __syncthreads();
    u32 start = base + warp_id() * HIGH_WARP_TILE + lane_id();
    for (u32 i = 0; i < HIGH_WARP_TILE && start + i < len; i += 32)
        count_one(shared, digits[start + i] >> 8);
    __syncthreads();
    u32 total = place_buckets(shared, offsets, tiles);
    for (u32 i = 0; i < HIGH_WARP_TILE; i += 32) {
        bool takes = start + i < len;
        u16 digit = takes ? digits[start + i] : 0;
        u32 place = next_place(shared, takes, digit >> 8);
        if (!takes) continue;
        shared.runs[place] = runs[start + i];
        shared.digits[place] = digit;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < total; i += THREADS) {
        u16 digit = shared.digits[i];
        u32 target = shared.targets[digit >> 8] + i;
        runs_out[target] = shared.runs[i];
        digits_out[target] = digit;
    }
}

// Marks the first run of each digit, and notes where it is. For digits of two bytes.
KERNEL runs_mark(uint2 *runs, const u16 *digits, const u32 *count, u32 *firsts) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= *count || !is_head(digits, at)) return;
    runs[at].x |= FIRST_OF_KEY;
    firsts[digits[at]] = at;
}

// Lists the keys that occur, ascending, and where the runs of each start; last where they all end.
// One block. `firsts` has NONE where a key does not occur.
KERNEL runs_keys(const u32 *firsts, u32 keys_max, const u32 *count, u16 *keys, u32 *key_runs,
                 u32 *keys_count) {
    __shared__ u32 room[32];
    u32 found = 0;
    // Four keys a thread.
    for (u32 first = 0; first < keys_max; first += 4 * blockDim.x) {
        u32 key = first + 4 * threadIdx.x;
        uint4 four = make_uint4(NONE, NONE, NONE, NONE);
        if (key < keys_max) four = *(const uint4 *)(firsts + key);
        u32 runs[4] = {four.x, four.y, four.z, four.w};
        u32 mine = 0;
        for (u32 i = 0; i < 4; i++) mine += runs[i] != NONE;
        u32 all;
        u32 place = found + block_sum_before(mine, room, &all);
        for (u32 i = 0; i < 4; i++) {
            if (runs[i] == NONE) continue;
            keys[place] = (u16)(key + i);
            key_runs[place++] = runs[i];
        }
        found += all;
    }
    if (threadIdx.x == 0) {
        key_runs[found] = *count;
        *keys_count = found;
    }
}
