// From sorted runs to pieces and containers, for the codecs that cut rows into chunks of 2^w.

#include "threads.cuh"
#include "words.cuh"
#include "piece.cuh"

// What a run is cut into.
struct Cut {
    u32 pieces;
    u32 containers;
    u32 rows;
    // 1 if it is the first of its key.
    u32 keys;
};

DEVICE Cut cut_of(const uint2 *runs, u32 at, u32 width) {
    Run run = run_at(runs, at);
    bool goes_on = !run.is_first && runs[at - 1].y >> width == run.start >> width;
    Cut cut;
    cut.pieces = (run.end >> width) - (run.start >> width) + 1;
    cut.containers = cut.pieces - goes_on;
    cut.rows = run.end - run.start + 1;
    cut.keys = run.is_first;
    return cut;
}

// Adds up pieces, containers, rows and keys of each tile of runs, in arrays one after the other.
KERNEL pieces_count(const uint2 *runs, const u32 *count, u32 width, u32 tiles, u32 *sums) {
    __shared__ u32 room[32];
    u32 len = *count;
    Cut sum = {0, 0, 0, 0};
    if (blockIdx.x * RUN_TILE < len) {
        u32 at = warp_first_run() + lane_id();
        for (u32 round = 0; round < RUN_ROUNDS; round++, at += 32) {
            if (at >= len) break;
            Cut cut = cut_of(runs, at, width);
            sum.pieces += cut.pieces;
            sum.containers += cut.containers;
            sum.rows += cut.rows;
            sum.keys += cut.keys;
        }
    }
    u32 total;
    block_sum_before(sum.pieces, room, &total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
    block_sum_before(sum.containers, room, &total);
    if (threadIdx.x == 0) sums[tiles + blockIdx.x] = total;
    block_sum_before(sum.rows, room, &total);
    if (threadIdx.x == 0) sums[2 * tiles + blockIdx.x] = total;
    block_sum_before(sum.keys, room, &total);
    if (threadIdx.x == 0) sums[3 * tiles + blockIdx.x] = total;
}

// Writes the pieces, the containers and one more that marks the end of all, and the first container
// of each key. `totals` are those of the sums.
KERNEL pieces_write(const uint2 *runs, const u32 *count, u32 width, u32 tiles, const u32 *sums,
                    const u32 *totals, Piece *pieces, Container *containers,
                    u32 *key_containers) {
    __shared__ Cut warp_sums[32];
    u32 len = *count;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        Container end = {totals[0], totals[2], 0, totals[3]};
        containers[totals[1]] = end;
        key_containers[totals[3]] = totals[1];
    }
    if (blockIdx.x * RUN_TILE >= len) return;
    u32 at = warp_first_run() + lane_id();
    Cut places[RUN_ROUNDS];
    Cut sum = {0, 0, 0, 0};
    for (u32 round = 0; round < RUN_ROUNDS; round++) {
        u32 run = at + 32 * round;
        Cut cut = {0, 0, 0, 0};
        if (run < len) cut = cut_of(runs, run, width);
        u32 pieces_here = warp_sum_to(cut.pieces);
        u32 containers_here = warp_sum_to(cut.containers);
        u32 rows_here = warp_sum_to(cut.rows);
        u32 keys_here = warp_sum_to(cut.keys);
        places[round].pieces = sum.pieces + pieces_here - cut.pieces;
        places[round].containers = sum.containers + containers_here - cut.containers;
        places[round].rows = sum.rows + rows_here - cut.rows;
        // Its key, from 1.
        places[round].keys = sum.keys + keys_here;
        sum.pieces += __shfl_sync(ALL_LANES, pieces_here, 31);
        sum.containers += __shfl_sync(ALL_LANES, containers_here, 31);
        sum.rows += __shfl_sync(ALL_LANES, rows_here, 31);
        sum.keys += __shfl_sync(ALL_LANES, keys_here, 31);
    }
    if (lane_id() == 0) warp_sums[warp_id()] = sum;
    __syncthreads();
    Cut before = {sums[blockIdx.x], sums[tiles + blockIdx.x], sums[2 * tiles + blockIdx.x],
                  sums[3 * tiles + blockIdx.x]};
    for (u32 warp = 0; warp < warp_id(); warp++) {
        before.pieces += warp_sums[warp].pieces;
        before.containers += warp_sums[warp].containers;
        before.rows += warp_sums[warp].rows;
        before.keys += warp_sums[warp].keys;
    }
    for (u32 round = 0; round < RUN_ROUNDS; round++, at += 32) {
        if (at >= len) break;
        Run run = run_at(runs, at);
        bool goes_on = !run.is_first && runs[at - 1].y >> width == run.start >> width;
        u32 piece_at = before.pieces + places[round].pieces;
        u32 container_at = before.containers + places[round].containers - goes_on;
        u32 rows_before = before.rows + places[round].rows;
        u32 key = before.keys + places[round].keys - 1;
        for (u32 chunk = run.start >> width; chunk <= run.end >> width; chunk++) {
            u32 start = chunk == run.start >> width ? run.start : chunk << width;
            u32 end = chunk == run.end >> width ? run.end : ((chunk + 1) << width) - 1;
            Piece piece = {start, end, container_at, rows_before};
            pieces[piece_at] = piece;
            if (!goes_on) {
                Container container = {piece_at, rows_before, chunk, key};
                containers[container_at] = container;
                if (run.is_first && chunk == run.start >> width) key_containers[key] = container_at;
            }
            goes_on = false;
            piece_at++;
            container_at++;
            rows_before += end - start + 1;
        }
    }
}
