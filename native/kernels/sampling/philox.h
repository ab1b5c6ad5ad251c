// Random numbers that depend on what they are for alone: Philox4x32-10, as ops/reference/philox.py describes.
#pragma once

#include <cstdint>

namespace inferno {

// A number in [0, 1), of 53 random bits: the key is the seed, the counter what the number is for.
double uniform(std::uint64_t seed, std::uint32_t sequence_index, std::uint32_t position,
               std::uint32_t purpose, std::uint32_t lane);

}  // namespace inferno
