// Runs of any length: a run of zeros carries up to 30 ones that follow it.

#include "threads.cuh"
#include "words.cuh"
#include "groups.cuh"

static const u32 ONES_FILL = 3u << 30;
static const u32 CARRIED = 1u << 30;
static const u32 CARRIED_MAX = 30;
static const u32 CARRIED_SHIFT = 25;
// Groups of zeros that a word with carried ones has room for.
static const u32 CARRYING_MAX = (1u << 20) - 1;
// Rows of a window.
static const u32 WINDOW_ROWS = 3968;

DEVICE u32 length_bits(u32 rows) { return rows / GROUP_ROWS << 5 | rows % GROUP_ROWS; }

// The zeros before a run.
DEVICE u32 zeros_before(const uint2 *runs, u32 at, const Run &run) {
    return run.is_first ? run.start : run.start - runs[at - 1].y - 1;
}

DEVICE bool carries(u32 zeros, u32 ones) {
    return ones != 0 && ones <= CARRIED_MAX && zeros != 0 &&
           zeros / GROUP_ROWS <= CARRYING_MAX;
}

// Writes zeros and the ones after them; returns how many words that takes.
DEVICE u32 write_pair(u32 zeros, u32 ones, u32 *target) {
    if (carries(zeros, ones)) {
        target[0] = CARRIED | ones << CARRIED_SHIFT | length_bits(zeros);
        return 1;
    }
    u32 words = 0;
    if (zeros != 0) target[words++] = length_bits(zeros);
    if (ones != 0) target[words++] = ONES_FILL | length_bits(ones);
    return words;
}

struct Masc {
    static DEVICE_METHOD u32 count(const uint2 *runs, u32, u32 at) {
        Run run = run_at(runs, at);
        u32 zeros = zeros_before(runs, at, run);
        return zeros == 0 || carries(zeros, run.end - run.start + 1) ? 1 : 2;
    }

    static DEVICE_METHOD void write(const uint2 *runs, u32, u32 at, u32 *target) {
        Run run = run_at(runs, at);
        write_pair(zeros_before(runs, at, run), run.end - run.start + 1, target);
    }
};

// In windows: no word crosses the end of a window, and the words of each window but the last cover
// it to its last row. A run gives the words from the row after the run before it to its own last
// row.
struct Windowed {
    // Counts the words, and writes them if there is a target.
    static DEVICE_METHOD u32 walk(const uint2 *runs, u32 at, u32 *target) {
        Run run = run_at(runs, at);
        u32 row = run.is_first ? 0 : runs[at - 1].y + 1;
        u32 words = 0;
        u32 room[2];
        while (row / WINDOW_ROWS != run.start / WINDOW_ROWS) {
            u32 left = WINDOW_ROWS - row % WINDOW_ROWS;
            words += write_pair(left, 0, target ? target + words : room);
            row += left;
        }
        u32 zeros = run.start - row;
        u32 start = run.start;
        while (start <= run.end) {
            u32 left = WINDOW_ROWS - start % WINDOW_ROWS;
            u32 ones = run.end - start + 1 < left ? run.end - start + 1 : left;
            words += write_pair(zeros, ones, target ? target + words : room);
            start += ones;
            zeros = 0;
        }
        return words;
    }

    static DEVICE_METHOD u32 count(const uint2 *runs, u32, u32 at) {
        return walk(runs, at, (u32 *)0);
    }

    static DEVICE_METHOD void write(const uint2 *runs, u32, u32 at, u32 *target) {
        walk(runs, at, target);
    }
};

KERNEL masc_count(const uint2 *runs, const u32 *count, u32 *sums) {
    count_words<Masc>(runs, count, sums);
}

KERNEL masc_write(const uint2 *runs, const u32 *count, const u32 *sums, const u32 *total,
                  const u32 *key_runs, const u32 *keys_count, u32 *target, u32 *key_words) {
    write_words<Masc>(runs, count, sums, total, key_runs, keys_count, target, key_words,
                      (u32 *)0);
}

KERNEL masc_window_count(const uint2 *runs, const u32 *count, u32 *sums) {
    count_words<Windowed>(runs, count, sums);
}

KERNEL masc_window_write(const uint2 *runs, const u32 *count, const u32 *sums, const u32 *total,
                         const u32 *key_runs, const u32 *keys_count, u32 *target,
                         u32 *key_words) {
    write_words<Windowed>(runs, count, sums, total, key_runs, keys_count, target, key_words,
                          (u32 *)0);
}
