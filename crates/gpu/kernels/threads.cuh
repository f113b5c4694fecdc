// Shared by all kernels: types, and sums over the threads of a warp and of a block.
//
// The sources are compiled by NVRTC, or by a C++ compiler against kernels/shim/shim.hpp, which
// runs them on the CPU for tests. They include nothing but each other.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#define DEVICE_METHOD __device__ __forceinline__

static const u32 ALL_LANES = 0xFFFFFFFFu;

DEVICE u32 lane_id() { return threadIdx.x & 31; }
DEVICE u32 warp_id() { return threadIdx.x >> 5; }

// Of all threads of a launch.
DEVICE u32 thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

// The lanes below this one.
DEVICE u32 lanes_below() { return (1u << lane_id()) - 1; }

// The sum of `value` over the lanes up to this one.
DEVICE u32 warp_sum_to(u32 value) {
    for (u32 step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(ALL_LANES, value, step);
        if (lane_id() >= step) value += other;
    }
    return value;
}

// The sum of `value` over the threads before this one; `total` is that over all of the block.
// `room` has 32 words; all threads call it, and it may be called again with the same room.
DEVICE u32 block_sum_before(u32 value, u32 *room, u32 *total) {
    u32 inclusive = warp_sum_to(value);
    __syncthreads();
    if (lane_id() == 31) room[warp_id()] = inclusive;
    __syncthreads();
    u32 warps = blockDim.x >> 5;
    u32 sums = warp_sum_to(lane_id() < warps ? room[lane_id()] : 0);
    *total = __shfl_sync(ALL_LANES, sums, 31);
    u32 before = __shfl_sync(ALL_LANES, sums, (warp_id() + 31) & 31);
    return inclusive - value + (warp_id() == 0 ? 0 : before);
}

// The shared memory of a block whose size the launch sets.
#ifndef SHARED_BYTES
#define SHARED_BYTES(name) extern __shared__ __align__(16) u8 name[]
#endif
