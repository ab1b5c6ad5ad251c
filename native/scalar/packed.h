// Single values out of packed weights (contract/packings.h).
#pragma once

#include <math.h>

#include "elements.h"

namespace inferno {
namespace {

using Index = std::int64_t;

inline Index num_groups(const Weight& w) { return num_scale_groups(w.inputs); }

// Where an output's element stands among those that lie as [O/16][count][16][together].
inline Index place(Index output, Index count, Index i, Index together) {
    const Index unit = output / kPanel * count + i / together;
    return (unit * kPanel + output % kPanel) * together + i % together;
}

// Where the byte of an input's code stands, and by how many bits the code is shifted in it.
struct CodePlace {
    Index byte;
    int shift;
};

template <class Format>
inline CodePlace code_place(const Weight& w, Index output, Index input) {
    if (Format::kBits == 8) return {place(output, num_groups(w) * 8, input, 4), 0};
    // Eight inputs share four bytes: the last four have the high bits.
    const Index at = place(output, num_groups(w) * 4, input / 8 * 4 + input % 4, 4);
    return {at, input % 8 < 4 ? 0 : 4};
}

// The whole number of a value: what its scale and the packing's unit are multiplied with.
template <class Format>
inline int whole(const Weight& w, Index output, Index input) {
    static_assert(Format::kBits == 8 || Format::kBits == 4);
    const CodePlace at = code_place<Format>(w, output, input);
    const int byte = static_cast<const std::uint8_t*>(w.data)[at.byte];
    const int code = byte >> at.shift & ((1 << Format::kBits) - 1);
    if constexpr (Format::kHasCodebook) return Format::kCodebook[code];
    return code - Format::kZeroPoint;
}

template <class Format>
inline float scale(const Weight& w, Index output, Index group) {
    const Index at = place(output, num_groups(w), group, 1);
    if (Format::kScaleType == ScaleType::bf16) return read(w.scales, Type::bf16, at);
    const int exponent = static_cast<const std::uint8_t*>(w.scales)[at];
    return exponent == 255 ? NAN : ::ldexpf(1.0f, exponent - 127);
}

template <class Format>
inline float value(const Weight& w, Index output, Index input) {
    if constexpr (Format::kHasScales) {
        return static_cast<float>(whole<Format>(w, output, input)) *
               (scale<Format>(w, output, input / kScaleGroup) * Format::kUnit);
    } else {
        const Index count = round_up(w.inputs, Format::kInputUnit) / Format::kInputUnit;
        return read(w.data, Format::kType, place(output, count, input, Format::kInputUnit));
    }
}

}  // namespace
}  // namespace inferno
