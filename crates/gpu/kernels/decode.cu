// The headers of frames, decoded: their keys, and what packets have for themselves.
//
// This decoder knows no headers: it refuses every frame, and the host does them.

#include "threads.cuh"

// Frame i is the record `first` + i. Its head is four words: where its bytes start, how many were
// captured, how many it had on the wire, and its link type and interface. Word w of its key goes to
// keys[w * stride + record]; `wide_of` is 0, or the number of its wide part in `wides` plus one.
// counts[0] is the number of refused frames, counts[1] that of wide parts.
KERNEL decode_frames(const u32 *heads, const u8 *data, u32 count, u32 first, u32 stride,
    const u64 *mask, u64 *keys, u32 *wide_of, u64 *wides, u32 *excess,
    u8 *own_flags, u8 *own_length, u16 *own_window, u16 *own_len_high, u16 *own_len_low,
    u32 *refused, u32 *counts) {
    u32 frame = thread_number();
    if (frame >= count) return;
    wide_of[first + frame] = 0;
    refused[atomicAdd(&counts[0], 1u)] = first + frame;
}
