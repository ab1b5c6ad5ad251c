// A product of rows and a packed weight, cut into pieces that any thread may do: what `linear` and
// `experts` are made of.
#pragma once

#include "../kernels.h"

namespace inferno::INFERNO_LEVEL {

struct Range {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t size() const { return end - begin; }
};

// Rows made ready for a weight's packing (linear_inputs.h), interleaved in blocks of a few: a block
// of R rows lies as [words][R], so that a tile reads it from end to end.
struct Inputs {
    std::uint32_t* words;
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
    Inputs x;
    Weight weight;
    Optional bias;
    Rows out;
    const Activation* gate = nullptr;  // if given, panels are pairs: of gates, and what they gate
};

// Rows that are arranged at a time: it bounds the memory they take.
constexpr std::int64_t kMostRows = 512;

inline std::int64_t num_panels(const Weight& weight) {
    return round_up(weight.outputs, kPanel) / kPanel;
}

inline Rows rows_from(const Rows& all, std::int64_t begin, std::int64_t end) {
    char* data = static_cast<char*>(all.data) + begin * all.stride * size_of(all.type);
    return {data, all.type, end - begin, all.width, all.stride};
}

// How many panels a piece has, when there are `count` and about `pieces` are wanted.
inline std::int64_t panels_of_piece(std::int64_t count, std::int64_t pieces) {
    constexpr std::int64_t kTogether = 4;  // what the widest tile takes
    return round_up((count + pieces - 1) / pieces, kTogether);
}

// The shape of so many arranged rows, without memory yet.
Inputs inputs_for(const Weight&, std::int64_t num_rows);

// Fill one block: its row t is row `index[t]` of x, or row t where there is no index.
void arrange(const Rows& x, const std::int64_t* index, const Weight&, const Inputs&,
             std::int64_t block);

// Write the outputs of these blocks and panels, or pairs.
void multiply(const Product&, Range blocks, Range panels);

}  // namespace inferno::INFERNO_LEVEL
