// Runs CUDA kernels on the CPU, for tests.
//
// The threads of a block are fibres of one thread. A fibre runs until it reaches a collective of
// its warp or a barrier of its block, and continues when all threads that have to have reached it;
// if some of them never can, the launch fails and says which threads wait where. The seed of a
// launch determines the order in which blocks, warps and lanes run, so that a kernel that relies on
// an order without enforcing it gives another result with another seed. Shared memory is garbage at
// the start of a block.
//
// What CUDA leaves open is strict here: a mask must not name a lane that has returned, all threads
// must reach a barrier from the same line, and what is undefined in CUDA is an error or garbage.
//
// The compiler is told to call the shim before each access to memory. This finds kernels that
// access memory that is not theirs, and gives another fibre its turn in the middle of what should
// have been atomic. It also calls the shim if an address is not aligned, an index is outside of an
// array, or a shift is too far. The functions have the names of the compiler's sanitizers; the
// sanitizers' libraries are not used.

#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <utility>
#if defined(__x86_64__) && !defined(SHIM_UCONTEXT)
#define SHIM_SWITCH
#else
#include <ucontext.h>
#endif

// The shim's own functions are not checked as kernels are.
#define SHIM_OWN static __attribute__((no_sanitize("thread", "undefined")))
#define SHIM_CALLBACK                                                                             \
    extern "C" __attribute__((used, visibility("hidden")))                                        \
    __attribute__((no_sanitize("thread", "undefined")))
// The place of the call in the kernel.
#define SHIM_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace shim {

typedef uint32_t u32;
typedef unsigned long long u64;

const u32 WARP = 32;
const u32 WARPS_MAX = 32;
const size_t STACK = 64 * 1024;
// Stacks that start at different cache lines do not evict each other.
const size_t STACK_STEP = STACK + 5 * 64;

// A block that makes more memory accesses than this waits for something that never happens.
const u64 TURNS_LONG_MAX = 1ull << 29;

struct Dim3 { u32 x, y, z; };

// Contexts.

#if defined(SHIM_SWITCH)
struct Context { void *sp; };
// Pushes the registers that a function must preserve, and continues where the other context
// stopped.
extern "C" void tapdex_shim_switch(void **from, void *to) __attribute__((visibility("hidden")));
__asm__(
    ".pushsection .text\n"
    ".p2align 4\n"
    ".hidden tapdex_shim_switch\n"
    ".globl tapdex_shim_switch\n"
    "tapdex_shim_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  popq %rcx\n"
    "  jmp *%rcx\n"
    ".popsection\n");
SHIM_OWN inline void change(Context *from, Context *to) { tapdex_shim_switch(&from->sp, to->sp); }
SHIM_OWN void prepare(Context *context, char *stack, void (*start)()) {
    uintptr_t top = ((uintptr_t)stack + STACK) & ~(uintptr_t)15;
    void **sp = (void **)top;
    *--sp = nullptr; // a return address that is never used, so that calls are aligned
    *--sp = (void *)start;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    context->sp = sp;
}
#else
struct Context { ucontext_t at; };
SHIM_OWN inline void change(Context *from, Context *to) { swapcontext(&from->at, &to->at); }
SHIM_OWN void prepare(Context *context, char *stack, void (*start)()) {
    getcontext(&context->at);
    context->at.uc_stack.ss_sp = stack;
    context->at.uc_stack.ss_size = STACK;
    context->at.uc_link = nullptr;
    makecontext(&context->at, start, 0);
}
#endif

// What runs.

enum CallKind {
    SHFL, SHFL_UP, SHFL_DOWN, SHFL_XOR,
    SHFL_WIDE, SHFL_UP_WIDE, SHFL_DOWN_WIDE, SHFL_XOR_WIDE,
    BALLOT, ANY, ALL, MATCH_ANY, MATCH_ANY_WIDE, MATCH_ALL, MATCH_ALL_WIDE, SYNCWARP,
    BARRIER, BARRIER_OR, BARRIER_AND, BARRIER_COUNT,
};
static const char *const KINDS[] = {
    "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync",
    "__shfl_sync of 64 bits", "__shfl_up_sync of 64 bits", "__shfl_down_sync of 64 bits",
    "__shfl_xor_sync of 64 bits", "__ballot_sync", "__any_sync", "__all_sync",
    "__match_any_sync", "__match_any_sync of 64 bits", "__match_all_sync",
    "__match_all_sync of 64 bits", "__syncwarp",
    "__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count",
};

struct Warp;
struct Lane {
    Context context;
    Warp *warp;
    u32 thread;
    u32 lane;
    u32 mask;
    u32 source;
    CallKind kind;
    int line;
    const char *file;
    u64 value;
    u64 result;
    char *stack;
};
// Each lane that has not returned is in one of these.
struct Warp {
    u32 number;
    u32 runnable;
    u32 collective;
    u32 barrier;
    Lane lanes[WARP];
};
struct Kernel {
    const char *name;
    void (*call)(void **args);
    u32 args;
    const u32 *sizes;
    u32 threads_max;
};

// The first byte, and the one after the last.
struct Range { u64 start, end; };

// Where a thread is. For a fibre these are constants, and kernels see them as constants, so that
// the compiler does not check reads of them. They change between fibres.
struct Position { Dim3 thread, block, blocks, threads; };
Position position __asm__("tapdex_shim_position") __attribute__((visibility("hidden")));
extern const Position seen __asm__("tapdex_shim_position") __attribute__((visibility("hidden")));

enum Order { ASCENDING, DESCENDING, SHUFFLED };

static Warp warps[WARPS_MAX];
static Lane *current;
static Context scheduler;
static u32 turn_left, turn_mean;
static u64 turns_long;
static char *shared_bytes;
static u32 shared_len;
static void (*kernel_call)(void **args);
static const char *kernel_name;
static void **kernel_args;
static const u32 *kernel_sizes;
static u32 kernel_arg_count;
// What the kernel may read and write, sorted.
static const Range *ranges;
static size_t range_count;
static Range range_last;
static Range arrays;
static u32 warp_count, ready, alive, arrived;
static u64 launch_seed;
static u32 random_state;
static Order lane_order, warp_order;
static bool out_of_order;
static bool failed;
static char message[8192];
static size_t message_len;

SHIM_OWN inline u32 random_next() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}
SHIM_OWN void random_start(u64 seed) {
    seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9ull + 0x9E3779B97F4A7C15ull;
    seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBull;
    random_state = (u32)(seed ^ (seed >> 31)) | 1;
}
// One of the bits that are set.
SHIM_OWN inline u32 pick(u32 set, Order order) {
    if (order == ASCENDING) return (u32)__builtin_ctz(set);
    if (order == DESCENDING) return 31 - (u32)__builtin_clz(set);
    u32 by = (random_next() >> 8) & 31;
    u32 turned = set >> by | set << (-by & 31);
    return ((u32)__builtin_ctz(turned) + by) & 31;
}
SHIM_OWN Order pick_order() {
    u32 choice = (random_next() >> 8) & 3;
    return choice == 0 ? ASCENDING : choice == 1 ? DESCENDING : SHUFFLED;
}

// Failures.

SHIM_OWN void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
SHIM_OWN void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    size_t room = sizeof message - message_len;
    int len = vsnprintf(message + message_len, room, format, args);
    va_end(args);
    if (len > 0) message_len += (size_t)len < room ? (size_t)len : room - 1;
}
SHIM_OWN void say_start() {
    failed = true;
    message_len = 0;
    say("kernel %s, block %u of %u, seed %llu: ", kernel_name, position.block.x, position.blocks.x,
        launch_seed);
}
// The lanes of a set, as ranges.
SHIM_OWN void say_lanes(u32 set) {
    const char *between = "";
    for (u32 lane = 0; lane < WARP; lane++) {
        if (!(set >> lane & 1)) continue;
        u32 end = lane;
        while (end + 1 < WARP && (set >> (end + 1) & 1)) end++;
        if (end > lane) say("%s%u-%u", between, lane, end);
        else say("%s%u", between, lane);
        between = ",";
        lane = end;
    }
}
SHIM_OWN bool same_wait(const Lane *one, const Lane *other) {
    return one->kind == other->kind && one->line == other->line && one->mask == other->mask;
}
SHIM_OWN void say_waiting(const Warp *warp, u32 set, bool masks) {
    while (set) {
        const Lane *first = &warp->lanes[__builtin_ctz(set)];
        u32 same = 0;
        for (u32 lane = 0; lane < WARP; lane++) {
            if (set >> lane & 1 && same_wait(first, &warp->lanes[lane])) same |= 1u << lane;
        }
        set &= ~same;
        say("; lanes ");
        say_lanes(same);
        say(" wait at %s", KINDS[first->kind]);
        if (masks) say(" with mask %08x", first->mask);
        say(" (%s:%d)", first->file, first->line);
    }
}
SHIM_OWN void say_warp(const Warp *warp) {
    u32 returned = ~(warp->runnable | warp->collective | warp->barrier);
    say("warp %u", warp->number);
    say_waiting(warp, warp->collective, true);
    say_waiting(warp, warp->barrier, false);
    if (warp->runnable) {
        say("; lanes ");
        say_lanes(warp->runnable);
        say(" run");
    }
    if (returned) {
        say("; lanes ");
        say_lanes(returned);
        say(" have returned");
    }
}
// Leaves the fibre for good.
SHIM_OWN void give_up() {
    change(&current->context, &scheduler);
    __builtin_unreachable();
}
SHIM_OWN void fail_start() {
    if (!current) abort();
    say_start();
    say("thread %u: ", current->thread);
}
SHIM_OWN __attribute__((noinline)) void fail_here(const char *what, const char *file, int line) {
    fail_start();
    say("%s (%s:%d)", what, file, line);
    give_up();
}

// Going on with another fibre.

SHIM_OWN inline void become(Lane *lane) {
    current = lane;
    position.thread.x = lane->thread;
}
SHIM_OWN inline void next_lane(Lane *me, bool other_warp, Order order = lane_order) {
    Warp *warp = me->warp;
    if (warp->runnable == 0 || other_warp) {
        change(&me->context, &scheduler);
        return;
    }
    Lane *next = &warp->lanes[pick(warp->runnable, order)];
    if (next == me) return;
    become(next);
    change(&me->context, &next->context);
}
// Gives another thread a turn, out of order: a thread that waits for another in a loop sees it
// progress.
SHIM_OWN __attribute__((noinline)) void let_others(bool other_warp) {
    out_of_order = other_warp;
    next_lane(current, other_warp, SHUFFLED);
}
// Lets others run first, now and then. Atomic operations do this.
SHIM_OWN inline void pause() {
    u32 chance = random_next();
    if ((chance >> 12 & 15) == 0) let_others((chance >> 16 & 7) == 0);
}
// A turn ends after this many memory accesses.
SHIM_OWN void turn_start() { turn_left = 1 + (random_next() >> 8) % (2 * turn_mean); }
SHIM_OWN __attribute__((noinline)) void turn_end() {
    turns_long += turn_mean;
    if (turns_long > TURNS_LONG_MAX) {
        fail_start();
        say("its block comes to no end, after %llu accesses to memory", turns_long);
        give_up();
    }
    turn_start();
    let_others((random_next() >> 12 & 3) == 0);
}

SHIM_OWN bool agree(const Warp *warp, u32 mask, CallKind kind) {
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const Lane *lane = &warp->lanes[__builtin_ctz(rest)];
        if (lane->kind != kind || lane->mask != mask) return false;
    }
    return true;
}
SHIM_OWN void give_all(Warp *warp, u32 mask, u64 result) {
    for (u32 rest = mask; rest; rest &= rest - 1) warp->lanes[__builtin_ctz(rest)].result = result;
}
SHIM_OWN u32 lanes_with(const Warp *warp, u32 mask, u64 value) {
    u32 same = 0;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        u32 lane = (u32)__builtin_ctz(rest);
        if (warp->lanes[lane].value == value) same |= 1u << lane;
    }
    return same;
}
SHIM_OWN void resolve(Warp *warp, u32 mask, CallKind kind) {
    u32 rest = mask;
    u32 zero;
    switch (kind) {
    case BALLOT: case ANY: case ALL:
        zero = lanes_with(warp, mask, 0);
        give_all(warp, mask, kind == ALL ? zero == 0 : kind == ANY ? zero != mask : mask & ~zero);
        break;
    case MATCH_ANY: case MATCH_ANY_WIDE:
        while (rest) {
            u32 same = lanes_with(warp, rest, warp->lanes[__builtin_ctz(rest)].value);
            give_all(warp, same, same);
            rest &= ~same;
        }
        break;
    case MATCH_ALL: case MATCH_ALL_WIDE:
        zero = lanes_with(warp, mask, warp->lanes[__builtin_ctz(mask)].value);
        give_all(warp, mask, zero == mask ? mask : 0);
        break;
    case SYNCWARP:
        break;
    default:
        for (; rest; rest &= rest - 1) {
            Lane *lane = &warp->lanes[__builtin_ctz(rest)];
            // The value of a missing lane is undefined.
            lane->result = mask >> lane->source & 1 ? warp->lanes[lane->source].value
                                                    : 0xBAD5EED0BAD5EED1ull * (lane->lane + 1);
        }
    }
}
// Waits for the lanes of the mask.
SHIM_OWN __attribute__((noinline)) u64 collective(
    CallKind kind, u32 mask, u64 value, u32 source, const char *file, int line) {
    Lane *me = current;
    Warp *warp = me->warp;
    if (!(mask >> me->lane & 1)) fail_here("a lane outside of the mask it names", file, line);
    me->kind = kind;
    me->mask = mask;
    me->value = value;
    me->source = source;
    me->file = file;
    me->line = line;
    warp->runnable &= ~(1u << me->lane);
    warp->collective |= 1u << me->lane;
    bool other_warp = false;
    if ((warp->collective & mask) == mask && agree(warp, mask, kind)) {
        resolve(warp, mask, kind);
        warp->collective &= ~mask;
        warp->runnable |= mask;
        other_warp = (random_next() >> 12 & 7) == 0;
    }
    next_lane(me, other_warp);
    return me->result;
}

SHIM_OWN void fail_barrier(const Lane *one, const Lane *other) {
    say_start();
    say("a barrier that not all threads come to: thread %u waits at %s (%s:%d), thread %u at %s "
        "(%s:%d)", one->thread, KINDS[one->kind], one->file, one->line, other->thread,
        KINDS[other->kind], other->file, other->line);
    give_up();
}
// All have arrived: lets them continue.
SHIM_OWN void release() {
    const Lane *first = nullptr;
    u32 count = 0;
    for (u32 i = 0; i < warp_count; i++) {
        for (u32 rest = warps[i].barrier; rest; rest &= rest - 1) {
            const Lane *lane = &warps[i].lanes[__builtin_ctz(rest)];
            if (!first) first = lane;
            if (!same_wait(first, lane)) fail_barrier(first, lane);
            count += lane->value != 0;
        }
    }
    u64 result = first->kind == BARRIER_OR ? count != 0
        : first->kind == BARRIER_AND ? count == arrived : count;
    for (u32 i = 0; i < warp_count; i++) {
        if (!warps[i].barrier) continue;
        give_all(&warps[i], warps[i].barrier, result);
        warps[i].runnable |= warps[i].barrier;
        warps[i].barrier = 0;
        ready |= 1u << i;
    }
    arrived = 0;
}
SHIM_OWN __attribute__((noinline)) u64 barrier(
    CallKind kind, u64 value, const char *file, int line) {
    Lane *me = current;
    me->kind = kind;
    me->mask = 0;
    me->value = value;
    me->file = file;
    me->line = line;
    me->warp->runnable &= ~(1u << me->lane);
    me->warp->barrier |= 1u << me->lane;
    arrived++;
    bool all = arrived == alive;
    if (all) release();
    next_lane(me, all);
    return me->result;
}

// Blocks and launches.

SHIM_OWN void fibre() {
    kernel_call(kernel_args);
    Lane *me = current;
    me->warp->runnable &= ~(1u << me->lane);
    alive--;
    if (alive && arrived == alive) release();
    next_lane(me, false);
    __builtin_unreachable();
}
SHIM_OWN bool allocate_stacks() {
    static bool done = false;
    if (done) return true;
    size_t bytes = (size_t)WARPS_MAX * WARP * STACK_STEP;
    void *area = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return false;
    for (u32 i = 0; i < WARPS_MAX * WARP; i++) {
        Lane *lane = &warps[i / WARP].lanes[i % WARP];
        lane->stack = (char *)area + i * STACK_STEP;
    }
    done = true;
    return true;
}
SHIM_OWN void start_block(u32 threads) {
    warp_count = threads / WARP;
    alive = threads;
    arrived = 0;
    ready = warp_count == 32 ? ~0u : (1u << warp_count) - 1;
    lane_order = pick_order();
    warp_order = pick_order();
    turn_mean = 8u << 4 * ((random_next() >> 8) % 3);
    turns_long = 0;
    out_of_order = false;
    turn_start();
    for (u32 i = 0; i < warp_count; i++) {
        Warp *warp = &warps[i];
        warp->number = i;
        warp->runnable = ~0u;
        warp->collective = warp->barrier = 0;
        for (u32 j = 0; j < WARP; j++) {
            Lane *lane = &warp->lanes[j];
            lane->warp = warp;
            lane->lane = j;
            lane->thread = i * WARP + j;
            prepare(&lane->context, lane->stack, fibre);
        }
    }
}
SHIM_OWN void run_block() {
    while (ready && !failed) {
        Warp *warp = &warps[pick(ready, out_of_order ? SHUFFLED : warp_order)];
        become(&warp->lanes[pick(warp->runnable, out_of_order ? SHUFFLED : lane_order)]);
        out_of_order = false;
        change(&scheduler, &current->context);
        if (failed || warp->runnable) continue;
        ready &= ~(1u << warp->number);
        if (warp->collective) {
            say_start();
            say("lanes of a mask that cannot come any more: ");
            say_warp(warp);
        }
    }
    current = nullptr;
    if (alive && !failed) {
        say_start();
        say("%u threads wait for nobody, which is a fault of the shim", alive);
    }
}
// The arrays that kernels declare as shared are thread-local variables of this library, which lie
// together, whatever function or template they come from. The only other thread-local variable is
// the mark, which makes the thread allocate them.
static thread_local char arrays_mark __attribute__((used));
SHIM_OWN int find_arrays(struct dl_phdr_info *info, size_t, void *) {
    bool mine = false;
    size_t len = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &header = info->dlpi_phdr[i];
        u64 offset = (u64)&position - info->dlpi_addr - header.p_vaddr;
        if (header.p_type == PT_LOAD && offset < header.p_memsz) mine = true;
        if (header.p_type == PT_TLS) len = header.p_memsz;
    }
    if (mine) arrays = Range{(u64)info->dlpi_tls_data, (u64)info->dlpi_tls_data + len};
    return mine;
}
SHIM_OWN void spoil_arrays(int garbage) {
    memset((void *)arrays.start, garbage, arrays.end - arrays.start);
}

const size_t ZONE = 256;
SHIM_OWN bool zone_kept(const char *zone, int garbage) {
    for (size_t i = 0; i < ZONE; i++) {
        if ((unsigned char)zone[i] != garbage) return false;
    }
    return true;
}
SHIM_OWN u32 common_divisor(u32 a, u32 b) { return b ? common_divisor(b, a % b) : a; }

SHIM_OWN void run_blocks(u32 blocks, u32 threads, u32 shared, char *area) {
    Order order = pick_order();
    u32 first = order == SHUFFLED ? random_next() % blocks : order == ASCENDING ? 0 : blocks - 1;
    u32 step = order == SHUFFLED ? random_next() % blocks : order == ASCENDING ? 1 : blocks - 1;
    while (common_divisor(step, blocks) != 1) step++;
    u64 at = first;
    shared_bytes = area + ZONE;
    shared_len = shared;
    for (u32 i = 0; i < blocks && !failed; i++, at = (at + step) % blocks) {
        position.block.x = (u32)at;
        int garbage = 0x80 | (int)(random_next() >> 8 & 0x7F);
        memset(area, garbage, shared + 2 * ZONE);
        spoil_arrays(garbage);
        start_block(threads);
        run_block();
        if (failed) return;
        if (!zone_kept(area, garbage) || !zone_kept(area + ZONE + shared, garbage)) {
            say_start();
            say("a write outside of the %u bytes of shared memory", shared);
        }
    }
}
SHIM_OWN const char *refuse(const char *kernel, const char *why) {
    message_len = 0;
    say("kernel %s: %s", kernel, why);
    return message;
}
// Null, or what went wrong.
SHIM_OWN const char *launch(const Kernel *table, size_t count, const char *name, u32 blocks,
    u32 threads, u32 shared, u64 seed, void **args, const u32 *sizes, u32 arg_count,
    const Range *known, size_t known_count) {
    const Kernel *kernel = nullptr;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].name, name) == 0) kernel = &table[i];
    }
    if (!kernel) return refuse(name, "there is no such kernel");
    if (threads == 0 || threads % WARP || threads > WARP * WARPS_MAX)
        return refuse(name, "the threads of a block are a multiple of 32, from 32 to 1024");
    if (threads > kernel->threads_max)
        return refuse(name, "more threads than its __launch_bounds__ allow");
    if (arg_count != kernel->args) return refuse(name, "it takes another number of arguments");
    for (u32 i = 0; i < arg_count; i++) {
        if (sizes[i] == kernel->sizes[i]) continue;
        message_len = 0;
        say("kernel %s: argument %u has %u bytes, not %u", name, i, kernel->sizes[i], sizes[i]);
        return message;
    }
    if (blocks == 0) return nullptr;
    char *area = nullptr;
    if (!allocate_stacks() || posix_memalign((void **)&area, 256, shared + 2 * ZONE))
        return refuse(name, "no memory for its threads");
    failed = false;
    launch_seed = seed;
    random_start(seed);
    kernel_name = kernel->name;
    kernel_call = kernel->call;
    kernel_args = args;
    kernel_sizes = sizes;
    kernel_arg_count = arg_count;
    ranges = known;
    range_count = known_count;
    range_last = Range{0, 0};
    *(volatile char *)&arrays_mark = 0;
    dl_iterate_phdr(find_arrays, nullptr);
    position = Position{{0, 0, 0}, {0, 0, 0}, {blocks, 1, 1}, {threads, 1, 1}};
    run_blocks(blocks, threads, shared, area);
    free(area);
    return failed ? message : nullptr;
}

// The checks that the compiler calls.

static const char READS[] = "reads", WRITES[] = "writes", CHANGES[] = "changes";

// The kernel's argument that points into a range.
SHIM_OWN int argument_of(Range range) {
    for (u32 i = 0; i < kernel_arg_count; i++) {
        if (kernel_sizes[i] != 8) continue;
        u64 value = *(u64 *)kernel_args[i];
        if (value >= range.start && value < range.end) return (int)i;
    }
    return -1;
}
SHIM_OWN void say_near(u64 at) {
    u64 behind = at - ((u64)shared_bytes + shared_len);
    if (behind < ZONE) {
        say(", %llu bytes behind the %u bytes of shared memory", behind, shared_len);
        return;
    }
    const Range *near = nullptr;
    u64 far = ~0ull;
    for (size_t i = 0; i < range_count; i++) {
        Range range = ranges[i];
        u64 away = at < range.start ? range.start - at : at < range.end ? 0 : at - range.end;
        if (away < far) near = &ranges[i];
        if (away < far) far = away;
    }
    if (!near || far > 1 << 20) return;
    say(", %llu bytes %s an allocation of %llu", far,
        at < near->start ? "before" : at < near->end ? "before the end of" : "behind",
        near->end - near->start);
    int argument = argument_of(*near);
    if (argument >= 0) say(" that argument %d points to", argument);
}
extern "C" char __ehdr_start[] __attribute__((visibility("hidden")));
SHIM_OWN __attribute__((noinline)) void fail_access(
    const char *what, u64 at, size_t bytes, void *from) {
    fail_start();
    say("%s %zu bytes at %#llx, which is not its memory", what, bytes, at);
    say_near(at);
    // The Rust side looks up the line.
    say(" @%#zx@", (size_t)((char *)from - __ehdr_start) - 1);
    give_up();
}
SHIM_OWN inline bool inside(u64 at, size_t bytes, u64 start, u64 end) {
    return at >= start && at + bytes <= end;
}
SHIM_OWN __attribute__((noinline)) bool known(u64 at, size_t bytes) {
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].end > at) high = middle;
        else low = middle + 1;
    }
    if (low == range_count || !inside(at, bytes, ranges[low].start, ranges[low].end)) return false;
    range_last = ranges[low];
    return true;
}
// Constants, which lie among the variables of this library.
extern "C" char _end[] __attribute__((visibility("hidden")));
SHIM_OWN inline void check(const char *what, u64 at, size_t bytes, void *from) {
    if (inside(at, bytes, range_last.start, range_last.end)) return;
    if (inside(at, bytes, (u64)shared_bytes, (u64)shared_bytes + shared_len)) return;
    if (inside(at, bytes, arrays.start, arrays.end)) return;
    u64 stack = (u64)current->stack;
    if (inside(at, bytes, stack, stack + STACK)) return;
    if (known(at, bytes)) return;
    if (what == READS && inside(at, bytes, (u64)__ehdr_start, (u64)_end)) return;
    fail_access(what, at, bytes, from);
}
SHIM_OWN inline void access(const char *what, u64 at, size_t bytes, void *from) {
    check(what, at, bytes, from);
    if (--turn_left == 0) turn_end();
}
#define SHIM_CHECK(name, what, bytes)                                                             \
    SHIM_CALLBACK void name(u64 at) { access(what, at, bytes, __builtin_return_address(0)); }
#define SHIM_CHECKS(bytes)                                                                        \
    SHIM_CHECK(__tsan_read##bytes, READS, bytes)                                                \
    SHIM_CHECK(__tsan_write##bytes, WRITES, bytes)                                              \
    SHIM_CHECK(__tsan_unaligned_read##bytes, READS, bytes)                                      \
    SHIM_CHECK(__tsan_unaligned_write##bytes, WRITES, bytes)
SHIM_CHECKS(1)
SHIM_CHECKS(2)
SHIM_CHECKS(4)
SHIM_CHECKS(8)
SHIM_CHECKS(16)
SHIM_CALLBACK void __tsan_read_range(u64 at, size_t bytes) {
    if (bytes) access(READS, at, bytes, __builtin_return_address(0));
}
SHIM_CALLBACK void __tsan_write_range(u64 at, size_t bytes) {
    if (bytes) access(WRITES, at, bytes, __builtin_return_address(0));
}
SHIM_CALLBACK void __tsan_init() {}
SHIM_CALLBACK void __tsan_func_entry(void *) {}
SHIM_CALLBACK void __tsan_func_exit() {}

// The compiler's description of a place starts with this.
struct Place { const char *file; u32 line, column; };
SHIM_CALLBACK void __ubsan_handle_type_mismatch_v1(const Place *place, void *at) {
    fail_here(at ? "an address that is not aligned" : "an address of 0", place->file,
        (int)place->line);
}
SHIM_CALLBACK void __ubsan_handle_out_of_bounds(const Place *place, void *) {
    fail_here("an index outside of its array", place->file, (int)place->line);
}
SHIM_CALLBACK void __ubsan_handle_shift_out_of_bounds(const Place *place, void *, void *) {
    fail_here("a shift by as many bits as there are, or more", place->file, (int)place->line);
}
SHIM_CALLBACK void __ubsan_handle_divrem_overflow(const Place *place, void *, void *) {
    fail_here("a division by 0", place->file, (int)place->line);
}

template <auto F> struct Described;
template <class... A, void (*F)(A...)> struct Described<F> {
    static constexpr u32 sizes[sizeof...(A) + 1] = {sizeof(A)..., 0};
    template <size_t... I> SHIM_OWN void spread(void **args, std::index_sequence<I...>) {
        F(*(A *)args[I]...);
    }
    SHIM_OWN void call(void **args) { spread(args, std::index_sequence_for<A...>()); }
    static constexpr Kernel kernel(const char *name, u32 threads_max) {
        return Kernel{name, call, sizeof...(A), sizes, threads_max};
    }
};

} // namespace shim

#include "cuda.hpp"
