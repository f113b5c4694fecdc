// A run as kernels pass it on: its first and its last row, and whether it is its key's first.

// In the first row of a run; columns have fewer rows than this.
static const u32 FIRST_OF_KEY = 1u << 31;

struct Run {
    u32 start;
    u32 end;
    bool is_first;
};

DEVICE Run run_at(const uint2 *runs, u32 at) {
    uint2 bits = runs[at];
    Run run;
    run.start = bits.x & ~FIRST_OF_KEY;
    run.end = bits.y;
    run.is_first = (bits.x & FIRST_OF_KEY) != 0;
    return run;
}

// The place of `value` in `starts`, which ascends and holds it.
DEVICE u32 place_of(const u32 *starts, u32 len, u32 value) {
    u32 low = 0;
    while (len > 1) {
        u32 half = len / 2;
        if (starts[low + half] <= value) low += half;
        len -= half;
    }
    return low;
}
