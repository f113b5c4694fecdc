// The index builder of the IMC'13 paper as its authors describe it: one Thrust call a step.
//
//   nvcc -O3 -std=c++17 --extended-lambda -arch=native -o imc13 bench/gpu/imc13.cu && ./imc13
//
// A peer to measure beside ours, not a part of tapdex. Its words are the paper's (a literal has the
// highest bit set, the first row is the lowest bit, fills of zeros only), not ours. Two things are
// not as printed, because as printed the result cannot be decoded: the fill before a value's first
// chunk counts all chunks before it, and the position of a lone bit is looked for below the
// literal's highest bit. Every result is decoded and compared with the column before it is timed.
//
// Prints lines of CSV: codec, bits of a value, records, values, words a record, then milliseconds
// of the whole and of each step, medians of the runs.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

using std::size_t;
using std::uint16_t;
using std::uint32_t;
using std::uint8_t;

static void check(cudaError_t result, int line) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "imc13: line %d: %s\n", line, cudaGetErrorString(result));
    std::exit(1);
}
#define CHECK(call) check(call, __LINE__)

static const uint32_t LITERAL = 1u << 31;
static const uint32_t POSITION_SHIFT = 25;
enum Step { COPY_IN, SORT, CHUNKS, MERGE, FILLS, FUSE, TABLE, COPY_OUT, STEPS };
static const char *const NAMES[STEPS] = {"copy in", "sort",       "chunks",        "merge",
                                         "fills",   "fuse words", "look-up table", "copy out"};

// Times what lies between two calls.
class Clock {
  public:
    Clock() {
        CHECK(cudaEventCreate(&from_));
        CHECK(cudaEventCreate(&to_));
        CHECK(cudaEventRecord(from_));
    }
    float lap() {
        float ms;
        CHECK(cudaEventRecord(to_));
        CHECK(cudaEventSynchronize(to_));
        CHECK(cudaEventElapsedTime(&ms, from_, to_));
        std::swap(from_, to_);
        return ms;
    }
    ~Clock() {
        cudaEventDestroy(from_);
        cudaEventDestroy(to_);
    }

  private:
    cudaEvent_t from_, to_;
};

// Page-locked memory of the host.
template <class T> class Pinned {
  public:
    explicit Pinned(size_t len) { CHECK(cudaMallocHost(&data, len * sizeof(T))); }
    ~Pinned() { cudaFreeHost(data); }
    T *data;
};

template <class Value> class Builder {
  public:
    explicit Builder(size_t records)
        : values(records), keys(records), rows(records), chunks(records), literals(records),
          merged_chunks(records), merged_literals(records), fills(records), counts(records),
          found(records), ends(records), words(2 * records), host_words(2 * records),
          host_ends(1 << 16), host_keys(1 << 16) {}

    void build(const Value *column, size_t records, bool plwah) {
        Clock clock;
        thrust::counting_iterator<uint32_t> zero(0);
        CHECK(cudaMemcpyAsync(raw(values), column, records * sizeof(Value),
                              cudaMemcpyHostToDevice));
        ms[COPY_IN] = clock.lap();

        thrust::sequence(rows.begin(), rows.end());
        thrust::stable_sort_by_key(values.begin(), values.end(), rows.begin());
        ms[SORT] = clock.lap();

        uint32_t *row = raw(rows), *chunk = raw(chunks), *literal = raw(literals);
        thrust::for_each_n(thrust::device, zero, records, [=] __device__(uint32_t i) {
            chunk[i] = row[i] / 31;
            literal[i] = LITERAL | 1u << row[i] % 31;
        });
        ms[CHUNKS] = clock.lap();

        auto pairs = thrust::make_zip_iterator(thrust::make_tuple(values.begin(), chunks.begin()));
        auto merged =
            thrust::make_zip_iterator(thrust::make_tuple(keys.begin(), merged_chunks.begin()));
        auto behind = thrust::reduce_by_key(pairs, pairs + records, literals.begin(), merged,
                                            merged_literals.begin(),
                                            thrust::equal_to<thrust::tuple<Value, uint32_t>>(),
                                            thrust::bit_or<uint32_t>());
        uint32_t len = behind.second - merged_literals.begin();
        ms[MERGE] = clock.lap();

        Value *key = raw(keys);
        uint32_t *at = raw(merged_chunks), *bits = raw(merged_literals), *fill = raw(fills);
        thrust::for_each_n(thrust::device, zero, len, [=] __device__(uint32_t i) {
            bool first = i == 0 || key[i] != key[i - 1];
            fill[i] = first ? at[i] : at[i] - at[i - 1] - 1;
        });
        if (plwah)
            thrust::for_each_n(thrust::device, zero, len, [=] __device__(uint32_t i) {
                uint32_t lone = bits[i] & ~LITERAL;
                if (fill[i] == 0 || fill[i] >> POSITION_SHIFT != 0 || __popc(lone) != 1) return;
                fill[i] |= (uint32_t)__ffs(lone) << POSITION_SHIFT;
                bits[i] = 0;
            });
        ms[FILLS] = clock.lap();

        uint32_t *word = raw(words);
        thrust::for_each_n(thrust::device, zero, len, [=] __device__(uint32_t i) {
            word[2 * i] = fill[i];
            word[2 * i + 1] = bits[i];
        });
        words_len = thrust::remove(words.begin(), words.begin() + 2 * (size_t)len, 0u) -
                    words.begin();
        ms[FUSE] = clock.lap();

        uint32_t *count = raw(counts);
        thrust::for_each_n(thrust::device, zero, len, [=] __device__(uint32_t i) {
            count[i] = (fill[i] != 0) + (bits[i] != 0);
        });
        auto table = thrust::reduce_by_key(keys.begin(), keys.begin() + len, counts.begin(),
                                           found.begin(), ends.begin());
        keys_len = table.first - found.begin();
        thrust::inclusive_scan(ends.begin(), ends.begin() + keys_len, ends.begin());
        ms[TABLE] = clock.lap();

        CHECK(cudaMemcpyAsync(host_keys.data, raw(found), keys_len * sizeof(Value),
                              cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpyAsync(host_ends.data, raw(ends), 4 * keys_len, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpyAsync(host_words.data, raw(words), 4 * words_len, cudaMemcpyDeviceToHost));
        ms[COPY_OUT] = clock.lap();
    }

    // Whether the index says what the column says.
    bool holds(const Value *column, size_t records, bool plwah) const {
        size_t rows_seen = 0;
        uint32_t start = 0;
        for (size_t k = 0; k < keys_len; k++) {
            uint32_t group = 0;
            for (uint32_t i = start; i < host_ends.data[k]; i++) {
                uint32_t word = host_words.data[i];
                uint32_t bits = word & ~LITERAL;
                if (!(word & LITERAL)) {
                    uint32_t position = plwah ? word >> POSITION_SHIFT : 0;
                    group += plwah ? word & ((1u << POSITION_SHIFT) - 1) : word;
                    if (position == 0) continue;
                    bits = 1u << (position - 1);
                }
                for (; bits != 0; bits &= bits - 1, rows_seen++) {
                    size_t row = (size_t)group * 31 + __builtin_ctz(bits);
                    if (row >= records || column[row] != host_keys.data[k]) return false;
                }
                group++;
            }
            start = host_ends.data[k];
        }
        return rows_seen == records;
    }

    float ms[STEPS];
    size_t words_len = 0, keys_len = 0;

  private:
    template <class T> static T *raw(thrust::device_vector<T> &v) {
        return thrust::raw_pointer_cast(v.data());
    }

    thrust::device_vector<Value> values, keys;
    thrust::device_vector<uint32_t> rows, chunks, literals, merged_chunks, merged_literals, fills,
        counts;
    thrust::device_vector<Value> found;
    thrust::device_vector<uint32_t> ends, words;
    Pinned<uint32_t> host_words, host_ends;
    Pinned<Value> host_keys;
};

static float median(std::vector<float> numbers) {
    std::sort(numbers.begin(), numbers.end());
    return numbers[numbers.size() / 2];
}

template <class Value> static void measure(size_t records, uint32_t values, int runs) {
    Pinned<Value> column(records);
    std::mt19937 random(2026);
    for (size_t i = 0; i < records; i++) column.data[i] = random() % values;
    Builder<Value> builder(records);
    for (bool plwah : {false, true}) {
        std::vector<float> whole, steps[STEPS];
        for (int run = -2; run < runs; run++) {
            builder.build(column.data, records, plwah);
            if (run == -2 && !builder.holds(column.data, records, plwah)) {
                std::fprintf(stderr, "imc13: the index does not say what the column says\n");
                std::exit(1);
            }
            if (run < 0) continue;
            float sum = 0;
            for (int step = 0; step < STEPS; step++) {
                steps[step].push_back(builder.ms[step]);
                sum += builder.ms[step];
            }
            whole.push_back(sum);
        }
        std::printf("%s,%zu,%zu,%u,%.3f,%.3f", plwah ? "plwah" : "wah", 8 * sizeof(Value), records,
                    values, (double)builder.words_len / records, median(whole));
        for (auto &step : steps) std::printf(",%.3f", median(step));
        std::printf("\n");
        std::fflush(stdout);
    }
}

int main() {
    const int runs = 11;
    std::printf("codec,bits,records,values,words a record,all ms");
    for (const char *name : NAMES) std::printf(",%s ms", name);
    std::printf("\n");
    for (uint32_t values : {256u, 1024u, 4096u, 16384u, 65536u})
        measure<uint16_t>(20000000, values, runs);
    measure<uint8_t>(1u << 26, 256, runs);
    measure<uint16_t>(1u << 26, 65536, runs);
}
