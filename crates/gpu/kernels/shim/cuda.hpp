// CUDA's language, for a C++ compiler: what a kernel's source may use, and nothing that devices
// before sm_80 lack. Written for shim.hpp, which includes it.

// The mark of a kernel, and its limit of threads, are still there after preprocessing: the Rust
// side looks for them, and appends a table of the kernels and the entry point.
#define __global__ __attribute__((noinline, visibility("hidden")))
#define __device__
#define __host__
#define __constant__
#define __shared__ static thread_local __attribute__((used))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(threads, ...) __attribute__((shim_threads(threads)))
#define SHARED_BYTES(name) unsigned char *name = (unsigned char *)shim::shared_bytes

#define threadIdx shim::seen.thread
#define blockIdx shim::seen.block
#define blockDim shim::seen.threads
#define gridDim shim::seen.blocks
static const int warpSize = 32;

#define SHIM_VECTORS(T, name, align2, align4)                                                     \
    struct name##1 { T x; };                                                                      \
    struct alignas(align2) name##2 { T x, y; };                                                   \
    struct name##3 { T x, y, z; };                                                                \
    struct alignas(align4) name##4 { T x, y, z, w; };                                             \
    static inline name##1 make_##name##1(T x) { return name##1{x}; }                              \
    static inline name##2 make_##name##2(T x, T y) { return name##2{x, y}; }                      \
    static inline name##3 make_##name##3(T x, T y, T z) { return name##3{x, y, z}; }              \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return name##4{x, y, z, w}; }
SHIM_VECTORS(unsigned char, uchar, 2, 4)
SHIM_VECTORS(signed char, char, 2, 4)
SHIM_VECTORS(unsigned short, ushort, 4, 8)
SHIM_VECTORS(short, short, 4, 8)
SHIM_VECTORS(unsigned int, uint, 8, 16)
SHIM_VECTORS(int, int, 8, 16)
SHIM_VECTORS(unsigned long long, ulonglong, 16, 16)
SHIM_VECTORS(long long, longlong, 16, 16)
SHIM_VECTORS(float, float, 8, 16)

static inline void __syncthreads(SHIM_SITE) { shim::barrier(shim::BARRIER, 0, file, line); }
static inline int __syncthreads_or(int p, SHIM_SITE) {
    return (int)shim::barrier(shim::BARRIER_OR, p != 0, file, line);
}
static inline int __syncthreads_and(int p, SHIM_SITE) {
    return (int)shim::barrier(shim::BARRIER_AND, p != 0, file, line);
}
static inline int __syncthreads_count(int p, SHIM_SITE) {
    return (int)shim::barrier(shim::BARRIER_COUNT, p != 0, file, line);
}
static inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, SHIM_SITE) {
    shim::collective(shim::SYNCWARP, mask, 0, 0, file, line);
}
static inline unsigned __activemask() { return 0xFFFFFFFFu; }
static inline unsigned __ballot_sync(unsigned mask, int p, SHIM_SITE) {
    return (unsigned)shim::collective(shim::BALLOT, mask, p != 0, 0, file, line);
}
static inline int __any_sync(unsigned mask, int p, SHIM_SITE) {
    return (int)shim::collective(shim::ANY, mask, p != 0, 0, file, line);
}
static inline int __all_sync(unsigned mask, int p, SHIM_SITE) {
    return (int)shim::collective(shim::ALL, mask, p != 0, 0, file, line);
}

namespace shim {
// The lane to read from, within this lane's group of `width`; outside of the group, the lane
// itself.
static inline u32 lane_by(CallKind kind, u32 by, int width) {
    u32 lane = seen.thread.x % WARP;
    u32 start = lane & ~((u32)width - 1);
    u32 end = start + (u32)width;
    switch (kind) {
    case SHFL: return start + (by & ((u32)width - 1));
    case SHFL_UP: return lane >= start + by ? lane - by : lane;
    case SHFL_DOWN: return lane + by < end ? lane + by : lane;
    default: return (lane ^ by) < end ? lane ^ by : lane;
    }
}
template <class T>
static inline T shuffle(
    CallKind kind, u32 mask, T value, u32 by, int width, const char *file, int line) {
    u64 bits = 0;
    memcpy(&bits, &value, sizeof(T));
    CallKind sized = sizeof(T) == 8 ? (CallKind)(kind + SHFL_WIDE) : kind;
    bits = collective(sized, mask, bits, lane_by(kind, by, width), file, line);
    memcpy(&value, &bits, sizeof(T));
    return value;
}
} // namespace shim

#define SHIM_SHUFFLES(T)                                                                          \
    static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32, SHIM_SITE) {        \
        return shim::shuffle(shim::SHFL, mask, v, (unsigned)from, width, file, line);             \
    }                                                                                             \
    static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, SHIM_SITE) {  \
        return shim::shuffle(shim::SHFL_UP, mask, v, by, width, file, line);                      \
    }                                                                                             \
    static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32,             \
        SHIM_SITE) {                                                                              \
        return shim::shuffle(shim::SHFL_DOWN, mask, v, by, width, file, line);                    \
    }                                                                                             \
    static inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32, SHIM_SITE) {      \
        return shim::shuffle(shim::SHFL_XOR, mask, v, (unsigned)by, width, file, line);           \
    }
SHIM_SHUFFLES(int)
SHIM_SHUFFLES(unsigned)
SHIM_SHUFFLES(long)
SHIM_SHUFFLES(unsigned long)
SHIM_SHUFFLES(long long)
SHIM_SHUFFLES(unsigned long long)
SHIM_SHUFFLES(float)
SHIM_SHUFFLES(double)

#define SHIM_MATCHES(T, any, all)                                                                 \
    static inline unsigned __match_any_sync(unsigned mask, T v, SHIM_SITE) {                      \
        return (unsigned)shim::collective(any, mask, (shim::u64)v, 0, file, line);                \
    }                                                                                             \
    static inline unsigned __match_all_sync(unsigned mask, T v, int *same, SHIM_SITE) {           \
        unsigned set = (unsigned)shim::collective(all, mask, (shim::u64)v, 0, file, line);        \
        *same = set != 0;                                                                         \
        return set;                                                                               \
    }
SHIM_MATCHES(int, shim::MATCH_ANY, shim::MATCH_ALL)
SHIM_MATCHES(unsigned, shim::MATCH_ANY, shim::MATCH_ALL)
SHIM_MATCHES(long long, shim::MATCH_ANY_WIDE, shim::MATCH_ALL_WIDE)
SHIM_MATCHES(unsigned long long, shim::MATCH_ANY_WIDE, shim::MATCH_ALL_WIDE)

static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __ffsll(long long v) { return __builtin_ffsll(v); }
static inline unsigned __brev(unsigned v) {
    v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
    v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
    v = (v >> 4 & 0x0F0F0F0Fu) | (v & 0x0F0F0F0Fu) << 4;
    return __builtin_bswap32(v);
}
static inline unsigned long long __brevll(unsigned long long v) {
    return (unsigned long long)__brev((unsigned)v) << 32 | __brev((unsigned)(v >> 32));
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned byte = (unsigned)(both >> (s >> (4 * i) & 7) * 8) & 0xFF;
        // The high bit of a selector asks for the byte's sign bit, repeated eight times.
        if (s >> (4 * i) & 8) byte = byte & 0x80 ? 0xFF : 0;
        result |= byte << (8 * i);
    }
    return result;
}
namespace shim {
static inline u64 pair(u32 lo, u32 hi) { return (u64)hi << 32 | lo; }
static inline u32 at_most_32(u32 by) { return by < 32 ? by : 32; }
} // namespace shim
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned by) {
    return (unsigned)(shim::pair(lo, hi) << (by & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned by) {
    return (unsigned)(shim::pair(lo, hi) >> (by & 31));
}
static inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned by) {
    return (unsigned)(shim::pair(lo, hi) << shim::at_most_32(by) >> 32);
}
static inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned by) {
    return (unsigned)(shim::pair(lo, hi) >> shim::at_most_32(by));
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

#define SHIM_LOAD(name) template <class T> static inline T name(const T *at) { return *at; }
SHIM_LOAD(__ldg)
SHIM_LOAD(__ldcs)
SHIM_LOAD(__ldcg)
SHIM_LOAD(__ldca)
#define SHIM_STORE(name) template <class T> static inline void name(T *at, T v) { *at = v; }
SHIM_STORE(__stcs)
SHIM_STORE(__stcg)
SHIM_STORE(__stwb)

#define SHIM_MIN_MAX(A, B, R)                                                                     \
    static inline R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; }                           \
    static inline R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
SHIM_MIN_MAX(int, int, int)
SHIM_MIN_MAX(unsigned, unsigned, unsigned)
SHIM_MIN_MAX(int, unsigned, unsigned)
SHIM_MIN_MAX(unsigned, int, unsigned)
SHIM_MIN_MAX(long long, long long, long long)
SHIM_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
SHIM_MIN_MAX(long long, unsigned long long, unsigned long long)
SHIM_MIN_MAX(unsigned long long, long long, unsigned long long)
SHIM_MIN_MAX(float, float, float)
SHIM_MIN_MAX(double, double, double)

namespace shim {
// Called before an atomic operation; from then on nothing comes between until it is done.
SHIM_OWN inline void atomic_start(void *at, size_t bytes, void *from, const char *file, int line) {
    if ((u64)at % bytes) fail_here("an address that is not aligned", file, line);
    check(CHANGES, (u64)at, bytes, from);
    pause();
}
} // namespace shim
#define SHIM_ATOMIC_START                                                                         \
    shim::atomic_start(at, sizeof *at, __builtin_return_address(0), file, line)
// Only one fibre runs at a time, so that these are plain operations.
#define SHIM_ATOMIC(name, T, expression)                                                          \
    SHIM_OWN __attribute__((noinline)) T name(T *at, T v, SHIM_SITE) {                            \
        SHIM_ATOMIC_START;                                                                        \
        T old = *at;                                                                              \
        *at = (expression);                                                                       \
        return old;                                                                               \
    }
#define SHIM_ATOMICS(T)                                                                           \
    SHIM_ATOMIC(atomicAdd, T, old + v)                                                            \
    SHIM_ATOMIC(atomicOr, T, old | v)                                                             \
    SHIM_ATOMIC(atomicAnd, T, old & v)                                                            \
    SHIM_ATOMIC(atomicXor, T, old ^ v)                                                            \
    SHIM_ATOMIC(atomicMax, T, old > v ? old : v)                                                  \
    SHIM_ATOMIC(atomicMin, T, old < v ? old : v)                                                  \
    SHIM_ATOMIC(atomicExch, T, v)                                                                 \
    SHIM_OWN __attribute__((noinline)) T atomicCAS(T *at, T expected, T v, SHIM_SITE) {           \
        SHIM_ATOMIC_START;                                                                        \
        T old = *at;                                                                              \
        if (old == expected) *at = v;                                                             \
        return old;                                                                               \
    }
SHIM_ATOMICS(int)
SHIM_ATOMICS(unsigned)
SHIM_ATOMICS(unsigned long long)
SHIM_ATOMIC(atomicSub, int, old - v)
SHIM_ATOMIC(atomicSub, unsigned, old - v)
SHIM_ATOMIC(atomicInc, unsigned, old >= v ? 0 : old + 1)

static inline void __threadfence() { shim::pause(); }
static inline void __threadfence_block() { shim::pause(); }
static inline void __threadfence_system() { shim::pause(); }
static inline void __nanosleep(unsigned) { shim::let_others(true); }
static inline void __trap(SHIM_SITE) { shim::fail_here("__trap", file, line); }
