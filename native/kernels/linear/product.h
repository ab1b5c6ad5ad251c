// A product of rows and a packed weight, cut into pieces that any thread may do: what `linear` and
// `experts` are made of.
#pragma once

#include "contract/kernels.h"
#include "runtime/team.h"

namespace inferno::INFERNO_ISA {

struct Range {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t size() const { return end - begin; }
};

// Rows of activations, packed for a weight (packed_activations.h) and interleaved in row blocks: a
// block of R rows lies as [words][R], so that a tile reads it from end to end.
struct PackedActivations {
    std::uint32_t* words;
    Type type;  // that values are multiplied as
    std::int64_t num_rows;
    std::int64_t num_blocks;
    std::int64_t row_words;

    // Rows are shared out evenly over the blocks.
    Range rows(std::int64_t block) const {
        return {num_rows * block / num_blocks, num_rows * (block + 1) / num_blocks};
    }
    std::uint32_t* block(std::int64_t block) const { return words + rows(block).begin * row_words; }
    std::int64_t bytes() const { return num_rows * row_words * 4; }
};

struct Product {
    PackedActivations x;
    Weight weight;
    Optional bias;
    Rows out;
    const Activation* gate = nullptr;  // if given, panels are pairs: of gates, and what they gate
};

// Rows that are packed at a time. A choice: it bounds the memory they take.
constexpr std::int64_t kMostRows = 512;

// Panels that the widest tile takes together.
constexpr std::int64_t kMostPanels = 4;

inline Rows rows_from(const Rows& all, std::int64_t begin, std::int64_t end) {
    char* data = static_cast<char*>(all.data) + begin * all.stride * size_of(all.type);
    return {data, all.type, end - begin, all.width, all.stride};
}

// The shape of so many rows packed for a weight, without memory yet; `beside_codes` is what they are
// to be there (LinearArgs).
PackedActivations activations_for(const Weight&, std::int64_t num_rows, Type beside_codes);

// Fill one row block: its row t is row `index[t]` of x, or row t where there is no index.
void pack_activations(const Rows& x, const std::int64_t* index, const Weight&,
                      const PackedActivations&, std::int64_t block);

// Write the outputs of these row blocks and panels, or pairs, with the memory of one thread.
void multiply(const Product&, Range blocks, Range panels, Team&, int thread);

}  // namespace inferno::INFERNO_ISA
