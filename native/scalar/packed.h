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
    const Index vectors = Format::kBits == 8 ? 8 : Format::kBits;  // of a scale group, of 64 bytes
    const Index group = output / kPanel * num_groups(w) + input / kScaleGroup;
    const Index lane = output % kPanel * 4 + input % 4, i = input % kScaleGroup;
    const auto at = [&](Index vector) { return (group * vectors + vector) * 4 * kPanel + lane; };
    if (Format::kBits == 8) return {at(i / 4), 0};
    // Eight inputs share four bytes: the last four have the high bits.
    return {at(i / 8), i % 8 < 4 ? 0 : 4};
}

// Where the bits of a code above the lower four stand.
template <class Format>
inline CodePlace upper_place(const Weight& w, Index output, Index input) {
    const Index group = output / kPanel * num_groups(w) + input / kScaleGroup;
    const Index lane = output % kPanel * 4 + input % 4, s = input % kScaleGroup / 4;
    const Index width = Format::kBits - 4, shared = 8 / width;
    return {(group * Format::kBits + 4 + s / shared) * 4 * kPanel + lane,
            static_cast<int>(s % shared * width)};
}

// The whole number of a value: what its scale and the packing's unit are multiplied with.
template <class Format>
inline int whole(const Weight& w, Index output, Index input) {
    const auto* bytes = static_cast<const std::uint8_t*>(w.data);
    const CodePlace at = code_place<Format>(w, output, input);
    int code = bytes[at.byte] >> at.shift & (Format::kBits == 8 ? 255 : 15);
    if constexpr (Format::kBits == 5 || Format::kBits == 6) {
        const CodePlace upper = upper_place<Format>(w, output, input);
        code |= (bytes[upper.byte] >> upper.shift & ((1 << (Format::kBits - 4)) - 1)) << 4;
    }
    if constexpr (Format::kHasCodebook) return Format::kCodebook[code];
    return code - Format::kZeroPoint;
}

// Where the scales begin that a scale group has together with its neighbours, and which it is.
struct ScalePlace {
    const std::uint8_t* bytes;
    Index nth;
    Index lane;

    float f16(Index vector) const { return read(bytes, Type::f16, vector * kPanel + lane); }
};

template <class Format>
inline ScalePlace scale_place(const Weight& w, Index output, Index group) {
    constexpr Index kTogether = groups_of(Format::kScaleType);
    const Index block = output / kPanel * (num_groups(w) / kTogether) + group / kTogether;
    return {static_cast<const std::uint8_t*>(w.scales) +
                block * kPanel * size_of(Format::kScaleType),
            group % kTogether, output % kPanel};
}

// The scale of an input's scale group, or of its half.
template <class Format>
inline float scale(const Weight& w, Index output, Index input) {
    const ScalePlace at = scale_place<Format>(w, output, input / kScaleGroup);
    switch (Format::kScaleType) {
        case ScaleType::bf16: return read(at.bytes, Type::bf16, at.lane);
        case ScaleType::e8m0: {
            const int exponent = at.bytes[at.lane];
            return exponent == 255 ? NAN : ::ldexpf(1.0f, exponent - 127);
        }
        case ScaleType::six_bit_offset: {
            const int bits = at.bytes[(4 + at.nth) * kPanel + at.lane] & 63;
            return at.f16(0) * static_cast<float>(bits);
        }
        case ScaleType::halves: {
            const Index half = at.nth * 2 + input % kScaleGroup / (kScaleGroup / 2);
            const auto bits = static_cast<std::int8_t>(at.bytes[(2 + half) * kPanel + at.lane]);
            return at.f16(0) * static_cast<float>(bits);
        }
        default: return at.f16(0);
    }
}

// The offset that is added to every scaled number of a scale group.
template <class Format>
inline float offset(const Weight& w, Index output, Index group) {
    const ScalePlace at = scale_place<Format>(w, output, group);
    if constexpr (Format::kScaleType == ScaleType::f16_offset) return at.f16(1);
    const int low = at.bytes[(4 + at.nth) * kPanel + at.lane] >> 6;
    const int pair = at.bytes[(12 + at.nth / 2) * kPanel + at.lane];
    const int high = at.nth % 2 ? pair >> 4 : pair & 15;
    return at.f16(1) * static_cast<float>(high << 2 | low);
}

template <class Format>
inline float value(const Weight& w, Index output, Index input) {
    if constexpr (Format::kHasScales) {
        const float number = static_cast<float>(whole<Format>(w, output, input));
        const float factor = scale<Format>(w, output, input) * Format::kUnit;
        if constexpr (!Format::kHasOffset) return number * factor;
        return ::fmaf(number, factor, offset<Format>(w, output, input / kScaleGroup));
    } else {
        const Index count = round_up(w.inputs, Format::kInputUnit) / Format::kInputUnit;
        return read(w.data, Format::kType, place(output, count, input, Format::kInputUnit));
    }
}

}  // namespace
}  // namespace inferno
