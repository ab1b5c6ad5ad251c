// The kernels' contract: what every instruction set (isa) offers. One table of functions per isa;
// the best one that the processor runs is chosen when the module is loaded.
//
// Every function gives the same bits for a row of its input whatever other rows come with it, and
// however many threads work: sums run in an order that depends on the width and on absolute
// positions alone.
#pragma once

#include <cstdint>
#include <vector>

#include "packings.h"
#include "runtime/team.h"
#include "types.h"

namespace inferno {

struct Optional {  // a vector that may be absent
    const void* data;
    Type type;
};

// A step as the layers of one table group see it, which share block tables: whose tokens these are,
// and where their keys and values lie. It is read when a kernel runs, so that a recorded step sees
// each new batch.
struct BatchView {
    std::int64_t num_requests;
    std::int64_t num_tokens;
    std::int64_t window;               // 0: none
    const std::int64_t* query_starts;  // [num_requests + 1]: first row of each request
    const std::int64_t* context_lens;  // [num_requests]: tokens in the cache after this step
    const std::int64_t* block_tables;  // [num_requests][table_width]
    std::int64_t table_width;
    const std::int64_t* slots;      // [num_tokens]: block * block_size + offset
    const std::int64_t* positions;  // [num_tokens]
    const std::int64_t* token_ids;  // [num_tokens]
};

// One layer's cache. Values lie as [blocks][kv_heads][block_size][head_dim], and so do keys of
// bfloat16, of which attention makes pairs. Keys of other types lie as
// [blocks][kv_heads][head_dim][block_size], so that 16 positions of one dimension fill a register.
// With int8 each head's key or value of a token has one scale: [blocks][kv_heads][block_size] float.
struct CacheView {
    void* keys;
    void* values;
    float* key_scales;
    float* value_scales;
    Type type;
    std::int64_t num_blocks;
    std::int64_t block_size;
    std::int64_t kv_heads;
    std::int64_t head_dim;

    bool has_whole_keys() const { return type == Type::bf16; }
    std::int64_t dimension_stride() const { return has_whole_keys() ? 1 : block_size; }
    // Where the key of `row` begins; rows count positions of all blocks' heads.
    std::int64_t key_start(std::int64_t row) const {
        if (has_whole_keys()) return row * head_dim;
        return row / block_size * head_dim * block_size + row % block_size;
    }
};

// Codes of int8 under a smaller scale are zeros: as a denormal number it is rounded so coarsely
// that they would leave their range.
constexpr float kLeastScale = 0x1p-140f;

enum class Gate : std::int32_t { silu = 0, clamped = 1 };

struct Activation {
    Gate gate;
    float alpha;  // of the clamped gate
    float limit;
};

struct LinearArgs {
    Rows x;  // f32 or bf16, [T, inputs]
    Weight weight;  // if it is all
    Optional bias;  // [outputs]
    Rows out;       // f32 or bf16, [T, outputs]; or [T, outputs / 2], where is_gated
    // Whether the first half of the outputs are gates of the second half, which begins a panel.
    bool is_gated = false;
    Activation activation = {};
    // Else ranges of rows, each in a packing of its own, whose outputs lie side by side; not gated.
    const Weight* ranges = nullptr;
    std::int64_t num_ranges = 0;
    // What rows are made beside codes (packings.h): i8, or bf16 where an isa has matrix registers.
    // Others have i8 alone.
    Type beside_codes = Type::i8;
};

// weight tables are those of packed weights: [experts] of each, all alike.
struct ExpertsArgs {
    Rows x;                        // [T, E]
    const std::int64_t* experts;   // [T, A]
    const float* weights;          // [T, A]
    std::int64_t num_chosen;       // A
    std::int64_t num_experts;      // X
    const Weight* gate_up;         // [X]: outputs 2F, gates first
    const Weight* down;            // [X]: outputs E
    Optional gate_up_bias;         // [X, 2F]
    Optional down_bias;            // [X, E]
    Activation activation;
    Rows out;  // [T, E]
    Type beside_codes = Type::i8;  // as LinearArgs has it
};

struct NormArgs {
    Rows x;             // [T, E]
    const void* residual;  // null, or [T, E] as x is, without gaps
    void* sum;          // where x + residual goes; null if there is no residual
    Optional weight;    // [E]
    float eps;
    Rows out;
};

struct RotateArgs {
    Rows q;               // [T, H * D]
    Rows k;               // [T, K * D]
    Rows v;               // [T, K * D]
    const float* cos_sin;  // [T][D]: D/2 cosines, D/2 sines
    Optional q_norm;      // [D]
    Optional k_norm;
    float eps;
    std::int64_t num_heads;
    const BatchView* batch;
    CacheView cache;
    Rows out;  // rotated q, [T, H * D]
};

struct AttentionArgs {
    Rows q;  // [T, H * D]
    std::int64_t num_heads;
    float scale;
    Optional sinks;  // [H]
    const BatchView* batch;
    CacheView cache;
    Rows out;  // [T, H * D]
};

// How logits become weights: round(exp((logit - peak) * inverse_temperature) * unit).
struct Scale {
    float peak;  // the row's largest logit, which weighs `unit`
    float inverse_temperature;
    float unit;   // a power of two: all weights of a row add up to less than 2^53
    float least;  // lighter tokens weigh nothing
};

constexpr std::int64_t kLogitBlock = 256;  // logits that have one peak and one mass

// Every kernel: what it returns, its name, its parameters. Each isa defines these functions, and its
// table of them, both declared by this list.
//
// embedding      rows `ids` of a packed weight, unpacked: out is [T, inputs].
// cos_sin        out[t] = cos(position * frequency) and then the sines, times factor:
//                [num_tokens][2 * half].
// gate           x is [T, 2F], gates first; out is [T, F].
// quantize       rows of a weight into `target`, whose packing must be for that, from output `first`
//                on, a multiple of 16; their number is one too, but at the weight's end.
// find_peaks, weigh_blocks, weigh_each   of a row of logits: each block's largest, NaN if it holds
//                one; each block's sum of weights, which is exact; and weights.
// find_at_least  how many logits are at least so much, and their places, ascending.
#define INFERNO_KERNEL_LIST(KERNEL)                                                                   \
    KERNEL(void, linear, (const LinearArgs&, Team&))                                              \
    KERNEL(void, experts, (const ExpertsArgs&, Team&))                                            \
    KERNEL(void, embedding,                                                                       \
           (const std::int64_t* ids, const Weight&, const Rows& out, Team&))                      \
    KERNEL(void, cos_sin,                                                                         \
           (const BatchView&, const float* frequencies, std::int64_t half, float factor,          \
            float* out, Team&))                                                                   \
    KERNEL(void, rms_norm, (const NormArgs&, Team&))                                              \
    KERNEL(void, rotate_and_store, (const RotateArgs&, Team&))                                    \
    KERNEL(void, attention, (const AttentionArgs&, Team&))                                        \
    KERNEL(void, gate, (const Rows& x, const Activation&, const Rows& out, Team&))                \
    KERNEL(void, quantize,                                                                        \
           (const Rows& source, std::int64_t first, const Weight& target, Team&))                 \
    KERNEL(void, find_peaks, (const float* logits, std::int64_t width, float* peaks))             \
    KERNEL(void, weigh_blocks,                                                                    \
           (const float* logits, std::int64_t width, const Scale&, double* masses))               \
    KERNEL(void, weigh_each,                                                                      \
           (const float* logits, std::int64_t width, const Scale&, float* weights))               \
    KERNEL(std::int64_t, find_at_least,                                                           \
           (const float* logits, std::int64_t width, float least, std::int32_t* places))

struct Kernels {
    const char* isa;
    bool has_matrix_registers;
#define INFERNO_FIELD(result, name, parameters) result(*name) parameters;
    INFERNO_KERNEL_LIST(INFERNO_FIELD)
#undef INFERNO_FIELD
};

// Those that this build has and this processor runs, the best one first; the last is scalar.
std::vector<const Kernels*> usable_kernels();
// Null where this build, or this processor, doesn't have the isa.
const Kernels* find_kernels(const char* isa);
// The kernels of this processor's best isa.
const Kernels* best_kernels();

}  // namespace inferno
