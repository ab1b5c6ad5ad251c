// Which tokens have the highest logits: an exact order, and no more of it than is asked for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"

namespace inferno {

inline std::int64_t num_blocks(std::int64_t width) {
    return (width + kLogitBlock - 1) / kLogitBlock;
}

// The first tokens of a row.
struct Ranked {
    const std::int32_t* ids;
    std::int64_t count;
};

// Ranks the tokens of rows by logit, the highest first, equal logits by id.
class Ranker {
   public:
    // If more are asked for, all are ranked.
    static constexpr std::int64_t kMostCandidates = 4096;

    // The memory that it works in, aligned to 8 bytes.
    static std::size_t bytes(std::int64_t width);

    Ranker(const Kernels& kernels, std::int64_t width, void* memory);

    // Begin with a row. False if it can't be ranked, for it holds NaN.
    bool read(const float* logits);

    // The first `count` tokens, at most all. They last until the next call.
    Ranked rank(std::int64_t count);

   private:
    // Ascending keys are descending logits, and ascending ids among equals.
    using Key = std::uint64_t;

    void find_candidates(std::int64_t count);
    float least_of_peaks(std::int64_t count);
    float keep(std::int64_t count);

    const Kernels& kernels_;
    const float* logits_ = nullptr;
    std::int64_t width_;
    Key* keys_;  // of candidates, by ascending id
    Key* other_keys_;
    std::int32_t* ids_;
    float* peaks_;  // of blocks
    float* other_peaks_;
    std::int64_t num_keys_ = 0;
};

}  // namespace inferno
