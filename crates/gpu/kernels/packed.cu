// Columns of one digit a packet in the packed form: the place of each digit among those that occur,
// in blocks of 128 numbers (crates/engine/src/index/v2/packed.rs has the layout).
//
// 1. `packed_seen` finds the digits that occur, and counts runs of the same digit.
// 2. `packed_places` counts, for each word of these marks, the digits before it.
// 3. `packed_measure` says how many bytes each block takes, `packed_write` writes it where it
//    stays. A warp has a block; lane i has the numbers i, i + 32, i + 64 and i + 96.

#include "threads.cuh"

static const u32 BLOCK_NUMBERS = 128;
static const u32 GROUP_BLOCKS = 64;
static const u32 FEW = 16;
static const u32 EACH = BLOCK_NUMBERS / 32;

static const u32 NEAR = 0;
static const u32 FEW_KIND = 1;
static const u32 ASCENDING = 2;
static const u32 PATCHED = 3;

// Words of the marks of all digits of 16 bits.
static const u32 MARKS = 65536 / 32;

template <class Digit>
DEVICE void see(const Digit *digits, u32 rows, u32 *seen, u32 *runs) {
    __shared__ u32 room[MARKS];
    for (u32 at = threadIdx.x; at < MARKS; at += blockDim.x) room[at] = 0;
    __syncthreads();
    u32 step = gridDim.x * blockDim.x;
    u32 changes = 0;
    for (u32 first = blockIdx.x * blockDim.x; first < rows; first += step) {
        u32 row = first + threadIdx.x;
        bool is_row = row < rows;
        u32 digit = is_row ? digits[row] : 0;
        bool is_new = is_row && (row == 0 || digits[row - 1] != (Digit)digit);
        changes += is_new;
        // The first of a run tells for all of it; so does the first row of a warp.
        u32 telling = __ballot_sync(ALL_LANES, is_new || (is_row && lane_id() == 0));
        if (telling >> lane_id() & 1) atomicOr(&room[digit / 32], 1u << digit % 32);
    }
    u32 sum = warp_sum_to(changes);
    if (lane_id() == 31 && sum != 0) atomicAdd(runs, sum);
    __syncthreads();
    for (u32 at = threadIdx.x; at < MARKS; at += blockDim.x)
        if (room[at] != 0) atomicOr(&seen[at], room[at]);
}

// Marks the digits that occur, and counts runs; both are 0 at first.
KERNEL packed_seen_u8(const u8 *digits, u32 rows, u32 *seen, u32 *runs) {
    see(digits, rows, seen, runs);
}
KERNEL packed_seen_u16(const u16 *digits, u32 rows, u32 *seen, u32 *runs) {
    see(digits, rows, seen, runs);
}

// The number of digits before each word of the marks, and the digits in order. One block of 1,024.
KERNEL packed_places(const u32 *seen, u32 *places, u16 *values, u32 *count) {
    __shared__ u32 room[32];
    u32 first = threadIdx.x * 2;
    u32 marks[2] = {seen[first], seen[first + 1]};
    u32 total;
    u32 place = block_sum_before(__popc(marks[0]) + __popc(marks[1]), room, &total);
    for (u32 i = 0; i < 2; i++) {
        places[first + i] = place;
        for (u32 left = marks[i]; left != 0; left &= left - 1)
            values[place++] = (u16)((first + i) * 32 + (u32)__ffs((int)left) - 1);
    }
    if (threadIdx.x == 0) *count = total;
}

DEVICE u32 warp_min(u32 value) {
    for (u32 step = 16; step > 0; step /= 2)
        value = min(value, __shfl_xor_sync(ALL_LANES, value, step));
    return value;
}

DEVICE u32 warp_max(u32 value) { return ~warp_min(~value); }

DEVICE u32 bits_of(u32 number) { return 32 - (u32)__clz((int)number); }

DEVICE u32 varint_len(u32 number) { return number == 0 ? 1 : (bits_of(number) + 6) / 7; }

DEVICE u8 *push_varint(u8 *target, u32 number) {
    for (; number >= 128; number >>= 7) *target++ = (u8)(number | 128);
    *target++ = (u8)number;
    return target;
}

// The numbers of a block; those behind its end are not used.
struct Block {
    u32 numbers[EACH];
    u32 len;

    DEVICE_METHOD bool has(u32 i) const { return i * 32 + lane_id() < len; }
};

// How a block is written: the bytes behind its head, the kind and the bits, so that the least is
// the best.
DEVICE u32 way(u32 bytes, u32 kind, u32 bits) { return bytes << 16 | kind << 8 | bits; }

// The least of the numbers that are greater than `bound`, or of all if there is none.
DEVICE u32 least_above(const Block &block, bool is_bound, u32 bound) {
    u32 least = 0xFFFFFFFFu;
#pragma unroll
    for (u32 i = 0; i < EACH; i++)
        if (block.has(i) && (!is_bound || block.numbers[i] > bound))
            least = min(least, block.numbers[i]);
    return warp_min(least);
}

// The number before each; that of the first is itself.
DEVICE void befores(const Block &block, u32 *before) {
    u32 last = 0;
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        u32 other = __shfl_up_sync(ALL_LANES, block.numbers[i], 1);
        u32 of_lane_0 = i == 0 ? block.numbers[i] : last;
        before[i] = lane_id() == 0 ? of_lane_0 : other;
        last = __shfl_sync(ALL_LANES, block.numbers[i], 31);
    }
}

// What is known of a block.
struct Shape {
    u32 least;
    u32 best;
    // Of the numbers that occur, if they are few.
    u32 count;
    u32 least_step;
};

DEVICE Shape shape_of(const Block &block) {
    Shape shape;
    u32 plane = (block.len + 7) / 8;
    u32 most = 0;
#pragma unroll
    for (u32 i = 0; i < EACH; i++)
        if (block.has(i)) most = max(most, block.numbers[i]);
    most = warp_max(most);
    shape.least = least_above(block, false, 0);
    u32 near_bits = bits_of(most - shape.least);
    u32 near = varint_len(shape.least);
    shape.best = way(near + near_bits * plane, NEAR, near_bits);
    shape.count = 0;
    shape.least_step = 0;
    if (near_bits > 1) {
        u32 count = 1, bytes = 1 + near;
        u32 number = shape.least;
        while (number != most && count <= FEW) {
            u32 next = least_above(block, true, number);
            bytes += varint_len(next - number - 1);
            number = next;
            count++;
        }
        if (count <= FEW) {
            u32 bits = bits_of(count - 1);
            shape.count = count;
            shape.best = min(shape.best, way(bytes + bits * plane, FEW_KIND, bits));
        }
    }
    if (near_bits > 0) {
        u32 before[EACH];
        befores(block, before);
        bool descends = false;
        u32 least_step = 0xFFFFFFFFu, most_step = 0;
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
            if (!block.has(i) || i * 32 + lane_id() == 0) continue;
            u32 step = block.numbers[i] - before[i];
            descends = descends || block.numbers[i] < before[i];
            least_step = min(least_step, step);
            most_step = max(most_step, step);
        }
        least_step = warp_min(least_step);
        most_step = warp_max(most_step);
        if (!__any_sync(ALL_LANES, descends)) {
            u32 first = __shfl_sync(ALL_LANES, block.numbers[0], 0);
            u32 bits = bits_of(most_step - least_step);
            u32 bytes = varint_len(first) + varint_len(least_step) + bits * plane;
            shape.least_step = least_step;
            shape.best = min(shape.best, way(bytes, ASCENDING, bits));
        }
    }
    if (near_bits > 1) {
        u32 patches = 0, patched = 0;
        for (u32 bits = near_bits; bits-- > 0;) {
            u32 wider = 0;
#pragma unroll
            for (u32 i = 0; i < EACH; i++) {
                bool is_it = block.has(i) && bits_of(block.numbers[i] - shape.least) == bits + 1;
                wider += (u32)__popc(__ballot_sync(ALL_LANES, is_it));
            }
            patches += wider * (1 + (bits + 1 + 6) / 7);
            patched += wider;
            if (patched == 0) continue;
            u32 bytes = 1 + near + patches + bits * plane;
            shape.best = min(shape.best, way(bytes, PATCHED, bits));
        }
    }
    return shape;
}

// Writes a block. All lanes call it.
DEVICE void write_block(const Block &block, const Shape &shape, u8 *target) {
    u32 kind = shape.best >> 8 & 0xFF, bits = shape.best & 0xFF;
    u32 bytes = shape.best >> 16;
    u32 plane = (block.len + 7) / 8;
    u8 *planes = target + 1 + bytes - bits * plane;
    u32 held[EACH];
    if (lane_id() == 0) *target = (u8)(kind << 6 | bits);
    target += 1;
    if (kind == FEW_KIND) {
        if (lane_id() == 0) {
            *target = (u8)(shape.count - 1);
            push_varint(target + 1, shape.least);
        }
        target += 1 + varint_len(shape.least);
        u32 number = shape.least;
#pragma unroll
        for (u32 i = 0; i < EACH; i++) held[i] = 0;
        for (u32 place = 1; place < shape.count; place++) {
            u32 next = least_above(block, true, number);
            if (lane_id() == 0) push_varint(target, next - number - 1);
            target += varint_len(next - number - 1);
            number = next;
#pragma unroll
            for (u32 i = 0; i < EACH; i++) held[i] += block.numbers[i] >= number;
        }
    } else if (kind == ASCENDING) {
        u32 before[EACH];
        befores(block, before);
        if (lane_id() == 0)
            push_varint(push_varint(target, block.numbers[0]), shape.least_step);
#pragma unroll
        for (u32 i = 0; i < EACH; i++)
            held[i] = i * 32 + lane_id() == 0 ? 0 : block.numbers[i] - before[i] - shape.least_step;
    } else {
        if (lane_id() == 0) push_varint(target, shape.least);
        target += varint_len(shape.least);
#pragma unroll
        for (u32 i = 0; i < EACH; i++) held[i] = block.numbers[i] - shape.least;
    }
    if (kind == PATCHED) {
        u8 *list = target + 1;
        u32 patched = 0;
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
            bool is_wide = block.has(i) && bits_of(held[i]) > bits;
            u32 len = is_wide ? 1 + varint_len(held[i]) : 0;
            u32 sum = warp_sum_to(len);
            if (is_wide) {
                u8 *at = list + sum - len;
                *at = (u8)(i * 32 + lane_id());
                push_varint(at + 1, held[i]);
                held[i] = 0;
            }
            list += __shfl_sync(ALL_LANES, sum, 31);
            patched += (u32)__popc(__ballot_sync(ALL_LANES, is_wide));
        }
        if (lane_id() == 0) *target = (u8)(patched - 1);
    }
    // Bit b of 32 numbers is four bytes of plane b: a lane writes one of these.
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        for (u32 bit = 0; bit < bits; bit++) {
            u32 column = __ballot_sync(ALL_LANES, block.has(i) && held[i] >> bit & 1);
            u32 at = i * 4 + lane_id();
            if (lane_id() < 4 && at < plane)
                planes[bit * plane + at] = (u8)(column >> 8 * lane_id());
        }
    }
}

// The block of a warp, as the places of digits.
template <class Digit>
DEVICE Block block_of(const Digit *digits, u32 rows, const u32 *seen, const u32 *places,
                      u32 number) {
    Block block;
    u32 first = number * BLOCK_NUMBERS;
    block.len = min(rows - first, BLOCK_NUMBERS);
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        u32 at = i * 32 + lane_id();
        u32 digit = at < block.len ? digits[first + at] : 0;
        u32 marks = seen[digit / 32] & ((1u << digit % 32) - 1);
        block.numbers[i] = at < block.len ? places[digit / 32] + (u32)__popc(marks) : 0;
    }
    return block;
}

template <class Digit>
DEVICE void measure(const Digit *digits, u32 rows, const u32 *seen, const u32 *places, u32 blocks,
                    u32 *lens) {
    u32 number = thread_number() / 32;
    if (number > blocks) return;
    u32 len = 0;
    if (number < blocks)
        len = 1 + (shape_of(block_of(digits, rows, seen, places, number)).best >> 16);
    if (lane_id() == 0) lens[number] = len;
}

// The bytes of each block, and a 0 behind the last one.
KERNEL packed_measure_u8(const u8 *digits, u32 rows, const u32 *seen, const u32 *places,
                         u32 blocks, u32 *lens) {
    measure(digits, rows, seen, places, blocks, lens);
}
KERNEL packed_measure_u16(const u16 *digits, u32 rows, const u32 *seen, const u32 *places,
                          u32 blocks, u32 *lens) {
    measure(digits, rows, seen, places, blocks, lens);
}

template <class Digit>
DEVICE void write(const Digit *digits, u32 rows, const u32 *seen, const u32 *places, u32 blocks,
                  const u32 *starts, u8 *target) {
    u32 number = thread_number() / 32;
    if (number >= blocks) return;
    u32 groups = (blocks + GROUP_BLOCKS - 1) / GROUP_BLOCKS;
    u32 start = starts[number];
    if (lane_id() == 0 && number > 0 && number % GROUP_BLOCKS == 0)
        ((u32 *)target)[number / GROUP_BLOCKS - 1] = start;
    Block block = block_of(digits, rows, seen, places, number);
    write_block(block, shape_of(block), target + 4 * (groups - 1) + start);
}

// The same of numbers of 32 bits, as they are.
KERNEL packed_measure_u32(const u32 *numbers, u32 len, u32 blocks, u32 *lens) {
    u32 number = thread_number() / 32;
    if (number > blocks) return;
    u32 bytes = 0;
    if (number < blocks) {
        Block block;
        u32 first = number * BLOCK_NUMBERS;
        block.len = min(len - first, BLOCK_NUMBERS);
#pragma unroll
        for (u32 i = 0; i < EACH; i++)
            block.numbers[i] = block.has(i) ? numbers[first + i * 32 + lane_id()] : 0;
        bytes = 1 + (shape_of(block).best >> 16);
    }
    if (lane_id() == 0) lens[number] = bytes;
}

// Writes where each group of blocks starts, but the first, and the blocks: `starts` is their bytes,
// summed up.
KERNEL packed_write_u8(const u8 *digits, u32 rows, const u32 *seen, const u32 *places, u32 blocks,
                       const u32 *starts, u8 *target) {
    write(digits, rows, seen, places, blocks, starts, target);
}
KERNEL packed_write_u16(const u16 *digits, u32 rows, const u32 *seen, const u32 *places,
                        u32 blocks, const u32 *starts, u8 *target) {
    write(digits, rows, seen, places, blocks, starts, target);
}
