// HiPES: plain bitsets of the chunks that hold a row, each after its number.

#include "threads.cuh"
#include "piece.cuh"

// Writes the number of each chunk.
KERNEL hipes_headers(const Container *containers, const u32 *count, u32 width, u32 *target) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < *count) target[(u64)at * ((1u << (width - 5)) + 1)] = containers[at].chunk;
}

// Sets the rows of each piece. The target's words are 0 except for the headers.
KERNEL hipes_rows(const Piece *pieces, const u32 *count, u32 width, u32 *target) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    u64 from = 1;
    u64 to = 0;
    if (at < *count) {
        Piece piece = pieces[at];
        u64 base = ((u64)piece.container * ((1u << (width - 5)) + 1) + 1) * 32;
        u32 mask = (1u << width) - 1;
        from = base + (piece.start & mask);
        to = base + (piece.end & mask);
    }
    set_bits(target, from, to);
}
