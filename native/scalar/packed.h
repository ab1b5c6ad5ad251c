// Single values out of packed weights.
#pragma once

#include <math.h>

#include "elements.h"

namespace inferno {
namespace {

using Index = std::int64_t;

inline bool is_grouped(const Weight& w) { return w.packing >= Packing::int8; }

inline Index num_groups(const Weight& w) { return round_up(w.inputs, kGroup) / kGroup; }

// Where an output's element stands among those that lie as [O/16][count][16][together].
inline Index place(Index output, Index count, Index i, Index together) {
    const Index unit = output / kPanel * count + i / together;
    return (unit * kPanel + output % kPanel) * together + i % together;
}

// A value in units of its group's scale.
inline int code(const Weight& w, Index output, Index input) {
    const std::uint8_t* bytes = static_cast<const std::uint8_t*>(w.data);
    if (w.packing == Packing::int8) {
        return bytes[place(output, num_groups(w) * 8, input, 4)] - 128;
    }
    // Eight inputs share four bytes: the last four have the high nibbles.
    const Index byte = place(output, num_groups(w) * 4, input / 8 * 4 + input % 4, 4);
    const int nibble = bytes[byte] >> (input % 8 < 4 ? 0 : 4) & 15;
    if (w.packing == Packing::int4) return nibble - 8;
    static const int doubled[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    return doubled[nibble];
}

// The scale of code(); E2M1 elements are doubled there, so that they are whole.
inline float scale(const Weight& w, Index output, Index group) {
    const Index at = place(output, num_groups(w), group, 1);
    if (w.packing != Packing::mxfp4) return read(w.scales, Type::bf16, at);
    const int exponent = static_cast<const std::uint8_t*>(w.scales)[at];
    return exponent == 255 ? NAN : ::ldexpf(1.0f, exponent - 127);
}

inline float unit_of(const Weight& w) { return w.packing == Packing::mxfp4 ? 0.5f : 1.0f; }

inline float value(const Weight& w, Index output, Index input) {
    if (w.packing == Packing::f32) {
        return read(w.data, Type::f32, place(output, w.inputs, input, 1));
    }
    if (w.packing == Packing::bf16) {
        return read(w.data, Type::bf16, place(output, round_up(w.inputs, 2) / 2, input, 2));
    }
    return static_cast<float>(code(w, output, input)) *
           (scale(w, output, input / kGroup) * unit_of(w));
}

}  // namespace
}  // namespace inferno
