// Kernels for the test of the shim: some right, and some with a fault that it must report.

#include "threads.cuh"

// Right: the sums before each number of a block's.
KERNEL sums(const u32 *in, u32 *out, u32 n) {
    __shared__ u32 room[32];
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    u32 total;
    u32 before = block_sum_before(at < n ? in[at] : 0, room, &total);
    if (at < n) out[at] = before;
}

// Right: the results of a warp's collectives, sixteen numbers for each thread.
KERNEL collectives(const u32 *in, u64 *out) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    u32 value = in[at];
    u64 *mine = out + 16 * at;
    mine[0] = __shfl_sync(ALL_LANES, value, value);
    mine[1] = __shfl_up_sync(ALL_LANES, value, 3);
    mine[2] = __shfl_down_sync(ALL_LANES, value, 5);
    mine[3] = __shfl_xor_sync(ALL_LANES, value, 9);
    mine[4] = __ballot_sync(ALL_LANES, value & 1);
    mine[5] = __any_sync(ALL_LANES, value == 7);
    mine[6] = __all_sync(ALL_LANES, value < 7);
    mine[7] = __match_any_sync(ALL_LANES, value);
    mine[8] = __shfl_up_sync(ALL_LANES, (u64)value << 40 | lane_id(), 1);
    mine[9] = __shfl_up_sync(ALL_LANES, value, 1, 8);
    mine[10] = __shfl_xor_sync(ALL_LANES, (int)value, 4, 16);
    // Two halves of a warp, each with a mask of its own.
    u32 half = lane_id() < 16 ? 0x0000FFFFu : 0xFFFF0000u;
    if (lane_id() < 16) mine[11] = __ballot_sync(half, value & 2);
    else mine[11] = __match_any_sync(half, value);
    mine[12] = __syncthreads_count(value == 3);
    mine[13] = __syncthreads_or(value == 3);
    mine[14] = __syncthreads_and(value < 20);
    int same;
    mine[15] = __match_all_sync(ALL_LANES, at / 32 % 2 ? 5u : value, &same) + (u64)same;
}

// Right: counts with atomic operations, in both kinds of memory.
KERNEL counts(const u32 *in, u32 *out, u32 n) {
    SHARED_BYTES(bytes);
    u32 *room = (u32 *)bytes;
    for (u32 i = threadIdx.x; i < 16; i += blockDim.x) room[i] = 0;
    __syncthreads();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&room[in[i] & 15], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&out[threadIdx.x], room[threadIdx.x]);
}

// Right: what one thread computes, to compare with the compiler's own functions.
KERNEL bits(const u32 *in, u64 *out) {
    u32 a = in[0], b = in[1];
    u64 wide = (u64)b << 32 | a;
    u32 i = 0;
    out[i++] = __popc(a);
    out[i++] = __popcll(wide);
    out[i++] = __clz(a);
    out[i++] = __clzll(wide);
    out[i++] = __clz(0);
    out[i++] = __ffs(a);
    out[i++] = __ffsll(wide);
    out[i++] = __ffs(0);
    out[i++] = __brev(a);
    out[i++] = __byte_perm(a, b, 0x3705);
    out[i++] = __byte_perm(a, b, 0x9480);
    out[i++] = __funnelshift_l(a, b, 37);
    out[i++] = __funnelshift_r(a, b, 37);
    out[i++] = __funnelshift_lc(a, b, 37);
    out[i++] = __funnelshift_rc(a, b, 37);
    out[i++] = min(a, b) + max(a, b);
    out[i++] = __umulhi(a, b);
    uint4 four = make_uint4(a, b, a, b);
    out[i++] = four.x + four.w + sizeof(uint4) + alignof(uint4) + alignof(ushort2);
}

// A sum of a block's threads; the barrier is what the fault leaves out.
template <bool BARRIER> DEVICE void reduce(const u32 *in, u32 *out) {
    __shared__ u32 room[256];
    room[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (u32 step = blockDim.x / 2; step; step /= 2) {
        if (BARRIER) __syncthreads();
        if (threadIdx.x < step) room[threadIdx.x] += room[threadIdx.x + step];
    }
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = room[0];
}
KERNEL reduce_right(const u32 *in, u32 *out) { reduce<true>(in, out); }
KERNEL reduce_without_barrier(const u32 *in, u32 *out) { reduce<false>(in, out); }

// Fault: lanes read what other lanes of the warp wrote, without synchronizing.
KERNEL warp_without_sync(u32 *out) {
    __shared__ u32 room[32];
    room[lane_id()] = lane_id();
    u32 other = room[31 - lane_id()];
    __syncwarp();
    out[lane_id()] = other;
}

// Fault: threads count in the same place without atomics.
KERNEL count_without_atomic(u32 *out, u32 times) {
    for (u32 i = 0; i < times; i++) out[lane_id() & 1]++;
}

// Right: threads that have returned need not reach a barrier.
KERNEL barrier_after_return(u32 *out, u32 stay) {
    __shared__ u32 room[256];
    room[threadIdx.x] = threadIdx.x;
    if (threadIdx.x >= stay) return;
    __syncthreads();
    out[threadIdx.x] = room[stay - 1 - threadIdx.x];
}

// Right: the first warp waits until the other warps, and the other lanes, have written something.
KERNEL wait_for_others(u32 *out) {
    volatile u32 *said = out;
    if (threadIdx.x == 0) {
        while (said[1] < blockDim.x - 1) {}
        out[0] = said[1];
    } else {
        atomicAdd(&out[1], 1u);
    }
}

// Fault: it waits for a block that may come later.
KERNEL wait_for_block(u32 *out) {
    volatile u32 *said = out;
    if (threadIdx.x == 0) {
        atomicAdd(out, 1u);
        while (*said < gridDim.x) {}
    }
}

// Fault: half of the threads do not reach the first barrier.
KERNEL barrier_missed(u32 *out) {
    if (threadIdx.x < 48) __syncthreads();
    out[threadIdx.x] = 1;
    __syncthreads();
}

// Fault: some lanes of a warp wait at a barrier, and the others wait for them.
KERNEL barrier_in_warp(u32 *out) {
    if (lane_id() < 8) __syncthreads();
    else out[threadIdx.x] = __ballot_sync(ALL_LANES, 1);
    __syncthreads();
}

// Fault: the last lanes have returned when the others need them.
KERNEL lanes_returned(u32 *out, u32 n) {
    if (threadIdx.x >= n) return;
    out[threadIdx.x] = __shfl_sync(ALL_LANES, threadIdx.x, 0);
}

// Fault: the lanes of a mask reach different collectives.
KERNEL lanes_elsewhere(u32 *out) {
    if (lane_id() & 1) out[threadIdx.x] = __ballot_sync(ALL_LANES, 1);
    else out[threadIdx.x] = __any_sync(ALL_LANES, 1);
}

// Fault: a lane is not in the mask that it names.
KERNEL lane_outside(u32 *out) { out[threadIdx.x] = __ballot_sync(0x0000FFFFu, 1); }

// Fault: the last thread writes one number too far.
KERNEL write_behind(u32 *out, u32 n) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at <= n) out[at] = at;
}

// Fault: one byte too far in the memory that a block shares.
KERNEL write_behind_shared(u32 bytes) {
    SHARED_BYTES(room);
    if (threadIdx.x == 0) room[bytes] = 0;
}

// Fault: far beyond all shared arrays.
KERNEL write_behind_array(u32 *out, u32 far) {
    __shared__ u32 room[32];
    u32 *at = out ? room : out;
    at[lane_id() + far] = lane_id();
    __syncthreads();
    out[threadIdx.x] = room[31 - lane_id()];
}

// Fault: a variable that all launches share.
static __device__ u32 stray[32];
KERNEL write_variable(u32 *out) {
    stray[lane_id()] = out[0];
    __syncwarp();
    out[threadIdx.x] = stray[31 - lane_id()];
}

// Fault: reads what was never written.
template <class T> DEVICE void read_unwritten_of(T *out) {
    __shared__ T room[32];
    SHARED_BYTES(bytes);
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    out[2 * at] = room[lane_id()];
    out[2 * at + 1] = bytes[lane_id()];
    __syncthreads();
    room[lane_id()] = 0;
    bytes[lane_id()] = 0;
}
KERNEL read_unwritten(u32 *out) { read_unwritten_of(out); }

// Fault: blocks are numbered in the order in which they run.
KERNEL block_order(u32 *next, u32 *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = atomicAdd(next, 1u);
}

// Fault: reads one number too far, without writing.
KERNEL read_behind(const u32 *in, u32 *out, u32 n) {
    u32 sum = 0;
    for (u32 i = threadIdx.x; i <= n; i += blockDim.x) sum += in[i];
    out[threadIdx.x] = sum;
}

// Fault: a number that is not at a multiple of its size.
KERNEL not_aligned(u32 *out, u32 by) { *(u32 *)((u8 *)out + by) = threadIdx.x; }

// Fault: the same, by an atomic operation.
KERNEL atomic_not_aligned(u32 *out, u32 by) { atomicOr((u32 *)((u8 *)out + by), 1u); }

// Fault: an index outside of an array that the threads share.
KERNEL index_outside(u32 *out, u32 by) {
    __shared__ u32 room[64];
    room[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = room[(threadIdx.x + by) & 127];
}

// Fault: a shift whose result depends on the machine.
KERNEL shift_far(u32 *out, u32 by) { out[threadIdx.x] = 1u << (lane_id() + by); }

// Fault: a division by zero.
KERNEL division(u32 *out, u32 by) { out[threadIdx.x] = threadIdx.x / by; }

// Fault: an atomic operation on the number after the last.
KERNEL atomic_behind(u32 *out, u32 n) { atomicAdd(&out[n], 1u); }

// Fault: one thread reads the stack of another.
KERNEL stack_of_another(u32 *out) {
    __shared__ u32 *room[1];
    u32 mine[4] = {threadIdx.x, 0, 0, 0};
    if (threadIdx.x == 0) room[0] = mine;
    __syncthreads();
    out[threadIdx.x] = *room[0];
    __syncthreads();
    mine[threadIdx.x & 3] = 5;
    out[threadIdx.x] += mine[1];
}

// Fault: the kernel itself reports that something is wrong.
KERNEL trap(u32 *out) {
    if (threadIdx.x == 40) __trap();
    out[threadIdx.x] = 0;
}

// Right for as many threads as it declares.
KERNEL __launch_bounds__(64) few_threads(u32 *out) { out[threadIdx.x] = threadIdx.x; }

// Right, and declared by a macro.
#define NAMED(name, value) KERNEL name(u32 *out) { out[threadIdx.x] = value; }
NAMED(named_five, 5)
NAMED(named_six, 6)
