// Which scales are tried for a group of 32 weights, and which values they may give.
//
// A group takes the scale that leaves the smallest squared error, and it is found by trying.
// Values round up or down at other places for each scale, so errors differ widely even between
// neighbours: of int8's 16 the best leaves a fifth less than the first. That is far more than
// rounding the scale to bfloat16 costs. Where the grid has gaps, the last to be tried is the
// scale that is best for the values found so far: weights that were multiples of a scale from the
// start stay what they are.
#pragma once

#include "../types.h"

namespace inferno {

// The first scale is peak / kWidest rounded up to a bfloat16, the peak being the group's largest
// magnitude; each next one is `kStride` bfloat16 numbers above the last. Each is tried with
// `kNumSigns` signs. Values are from kLowest to kHighest, times the scale.
struct Int8Grid {
    static constexpr float kWidest = 127.5f;  // the peak is half a step off at most
    static constexpr int kNumScales = 16;
    static constexpr int kStride = 1;
    static constexpr int kNumSigns = 1;
    static constexpr float kLowest = -127.0f;
    static constexpr float kHighest = 127.0f;
    static constexpr int kOffset = 128;
};

// It can pay to cut the peak off, by a seventh of it at most, or not to use the largest value. The
// peak may be positive or negative where values reach farther down than up, hence two signs.
struct Int4Grid {
    static constexpr float kWidest = 9.25f;
    static constexpr int kNumScales = 14;
    static constexpr int kStride = 6;
    static constexpr int kNumSigns = 2;
    static constexpr float kLowest = -8.0f;
    static constexpr float kHighest = 7.0f;
    static constexpr int kOffset = 8;
};

// Groups whose peak is less become zeros, so that 1 / scale is finite.
constexpr float kLeastWeight = 1e-30f;

}  // namespace inferno
