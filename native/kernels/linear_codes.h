// Codes and scales of packed weights, as vectors of 16 outputs that a tile multiplies.
#pragma once

#include "../simd/elements.h"

namespace inferno {
namespace {

constexpr Index kVector = 64;  // bytes of a weight vector: 16 outputs, 4 bytes each

inline I low_nibbles(I bytes) { return bit_and(bytes, splat_int(0x0f0f0f0f)); }

// E2M1, doubled to be whole, plus 12 to be unsigned.
inline I e2m1_values(I nibbles) {
    const __m128i values = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24,  //
                                         12, 11, 10, 9, 8, 6, 4, 0);
    return look_up(values, nibbles);
}

// Vectors 2 `pair` and 2 `pair` + 1 of a group, as unsigned bytes.
struct Int8Codes {
    static constexpr Index kBytes = kGroup * kPanel;
    static void load(const char* group, int pair, I& first, I& second) {
        first = load_int_aligned(group + 2 * pair * kVector);
        second = load_int_aligned(group + (2 * pair + 1) * kVector);
    }
    static I dot(I acc, I codes, I x) { return dot4(acc, codes, x); }
};

struct Int4Codes {
    static constexpr Index kBytes = kGroup * kPanel / 2;
    static void load(const char* group, int pair, I& first, I& second) {
        const I both = load_int_aligned(group + pair * kVector);
        first = low_nibbles(both);
        second = low_nibbles(shift_right<4>(both));
    }
    static I dot(I acc, I codes, I x) { return dot4_small(acc, codes, x); }
};

struct Mxfp4Codes {
    static constexpr Index kBytes = kGroup * kPanel / 2;
    static void load(const char* group, int pair, I& first, I& second) {
        Int4Codes::load(group, pair, first, second);
        first = e2m1_values(first);
        second = e2m1_values(second);
    }
    static I dot(I acc, I codes, I x) { return dot4_small(acc, codes, x); }
};

struct Bf16Scales {
    static constexpr Index kBytes = 32;
    static F load(const char* group) {
        return load_bf16(reinterpret_cast<const std::uint16_t*>(group));
    }
};

struct E8m0Scales {
    static constexpr Index kBytes = 16;
    // 2^(code - 127): the code is a float's exponent, but 0, a denormal, and 255, NaN.
    static F load(const char* group) {
        const I codes = load_u8(reinterpret_cast<const std::uint8_t*>(group));
        const F power = max(as_float(shift_left<23>(codes)), as_float(splat_int(0x00400000)));
        return add(power, sub(power, power));
    }
};

// How a group's dots are added to sums, given the weights' scales and a word of the row's
// (linear_inputs.h).
struct FloatFactor {
    F factor;
    explicit FloatFactor(std::int32_t word) : factor(as_float(splat_int(word))) {}
    F add_to(F sum, I dots, F scale) const { return fma(to_float(dots), mul(scale, factor), sum); }
};

// The exponent of 0 grows too, but 2^-127 of the group's unit is nothing to any sum.
struct ExponentFactor {
    I above;
    explicit ExponentFactor(std::int32_t word) : above(splat_int(word)) {}
    F add_to(F sum, I dots, F scale) const {
        return fma(as_float(add_int(as_int(to_float(dots)), above)), scale, sum);
    }
};

// What a row's sums count. `last` is where the row's last word lies, if it is a unit.
struct One {
    static F of(F sum, const std::uint32_t*) { return sum; }
};
struct Half {  // E2M1 is doubled
    static F of(F sum, const std::uint32_t*) { return mul(sum, splat(0.5f)); }
};
struct LastWord {
    static F of(F sum, const std::uint32_t* last) {
        return mul(sum, as_float(splat_int(static_cast<std::int32_t>(*last))));
    }
};

template <class AnyCodes, class AnyScales, class AnyFactor, class AnyUnit>
struct Grouped {
    using Codes = AnyCodes;
    using Scales = AnyScales;
    using Factor = AnyFactor;
    using Unit = AnyUnit;
};

using Int8 = Grouped<Int8Codes, Bf16Scales, FloatFactor, One>;
using Int4 = Grouped<Int4Codes, Bf16Scales, ExponentFactor, LastWord>;
using Mxfp4 = Grouped<Mxfp4Codes, E8m0Scales, FloatFactor, Half>;

inline void store_vector(char* p, I bytes) { store(reinterpret_cast<float*>(p), as_float(bytes)); }

}  // namespace
}  // namespace inferno
