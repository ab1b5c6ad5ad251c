// Codes made bfloat16, for products in matrix registers.
#pragma once

#include "codes.h"
#include "simd/matrix_registers.h"

#if defined(__AMX_BF16__)

namespace inferno {
namespace {

// Vectors of a scale group: 16 outputs, two inputs each.
constexpr Index kGroupVectors = kScaleGroup / 2;

// How far ahead codes are brought into the L2 cache, in scale groups. Of 2, 4, 8 and 16 none is much
// better on a Xeon; a pair of panels ahead is worse, for a thread's first ones come too late then.
constexpr Index kPrefetchedGroups = 4;

// Whether codes are looked up where they lie among others, as the float that each stands for.
template <class Format>
constexpr bool kAreLookedUp = Format::kBits == 4;

template <class Format>
constexpr float number_of(int code) {
    if constexpr (Format::kHasCodebook) return static_cast<float>(Format::kCodebook[code]);
    return static_cast<float>(code - Format::kZeroPoint);
}

// What makes numbers of 16 outputs values, as they are before they are cut off.
struct Scaling {
    F scale;
    F offset;  // unused where numbers are looked up and have none
};

// Those of the two halves of a scale group, which was begun with `begin` (Scales).
template <class Format>
INFERNO_INLINE void load_scalings(const Scales<Format>& scales, const char* panel_scales,
                                  Index group, Scaling (&halves)[2]) {
    const F factor = splat(kCutOffFactor * Format::kUnit);
    const auto scaling_of = [&](F loaded) -> Scaling {
        const F scale = mul(loaded, factor);
        return {scale, mul(scale, splat(-static_cast<float>(Format::kZeroPoint)))};
    };
    if constexpr (Format::kHasHalves) {
        halves[0] = scaling_of(scales.load(panel_scales, group, 0));
        halves[1] = scaling_of(scales.load(panel_scales, group, 1));
    } else {
        halves[0] = scaling_of(scales.load(panel_scales, group));
        if constexpr (Format::kHasOffset) {
            halves[0].offset =
                mul(scales.load_offset(panel_scales, group), splat(kCutOffFactor));
        }
        halves[1] = halves[0];
    }
}

// The values of 16 outputs, whose codes begin with bit kBit of each lane.
template <class Format, int kBit>
INFERNO_INLINE F values_from(I codes, const Scaling& of) {
    if constexpr (kBit > 0) codes = shift_right<kBit>(codes);
    if constexpr (kAreLookedUp<Format>) {
        const __m512 numbers = _mm512_setr_ps(
            number_of<Format>(0), number_of<Format>(1), number_of<Format>(2), number_of<Format>(3),
            number_of<Format>(4), number_of<Format>(5), number_of<Format>(6), number_of<Format>(7),
            number_of<Format>(8), number_of<Format>(9), number_of<Format>(10),
            number_of<Format>(11), number_of<Format>(12), number_of<Format>(13),
            number_of<Format>(14), number_of<Format>(15));
        const F number = {_mm512_permutexvar_ps(codes.v, numbers)};  // of the lowest four bits
        return Format::kHasOffset ? fma(number, of.scale, of.offset) : mul(number, of.scale);
    } else {
        if constexpr (kBit < 24) codes = bit_and(codes, splat_int(0xff));
        return fma(to_float(codes), of.scale, of.offset);
    }
}

// Two inputs of 16 outputs, side by side, cut off behind the bits of a bfloat16.
INFERNO_INLINE void store_pairs(char* to, F even, F odd) {
    const __m512i low = _mm512_srli_epi32(as_int(even).v, 16), high = as_int(odd).v;
    const __m512i mask = _mm512_set1_epi32(static_cast<std::int32_t>(0xffff0000));
    _mm512_store_si512(to, _mm512_ternarylogic_epi32(mask, high, low, 0xca));  // mask ? high : low
}

// Four inputs, whose codes are 8 bits apart.
template <class Format, int kBit>
INFERNO_INLINE void unpack_four(I codes, const Scaling& of, char* to) {
    store_pairs(to, values_from<Format, kBit>(codes, of), values_from<Format, kBit + 8>(codes, of));
    store_pairs(to + kVector, values_from<Format, kBit + 16>(codes, of),
                values_from<Format, kBit + 24>(codes, of));
}

// The vectors of a scale group.
template <class Format>
INFERNO_INLINE void unpack_group(const char* codes, const Scaling (&halves)[2], char* to) {
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair, to += 4 * kVector) {
        const Scaling& of = halves[pair / 2];
        if constexpr (kAreLookedUp<Format>) {
            const I both = load_int_aligned(codes + pair * kVector);
            unpack_four<Format, 0>(both, of, to);
            unpack_four<Format, 4>(both, of, to + 2 * kVector);
        } else {
            I first, second;
            Codes<Format>::load(codes, pair, first, second);
            unpack_four<Format, 0>(first, of, to);
            unpack_four<Format, 0>(second, of, to + 2 * kVector);
        }
    }
}

// Unpacks scale groups of a panel one after the other, from group `first` on.
template <class Format>
class GroupUnpacker {
   public:
    // codes   of group `first`, and of `count` in all.
    // next    codes that are read after these.
    void begin(const char* codes, const char* next, const char* panel_scales, Index first,
               Index count) {
        codes_ = codes;
        next_ = next - count * Codes<Format>::kBytes;
        panel_scales_ = panel_scales;
        first_ = first;
        count_ = count;
    }

    INFERNO_INLINE void unpack(Index nth, char* vectors) {
        constexpr Index kBytes = Codes<Format>::kBytes;
        const Index ahead = nth + kPrefetchedGroups;
        const char* soon = (ahead < count_ ? codes_ : next_) + ahead * kBytes;
        for (Index line = 0; line < kBytes; line += kVector) {
            __builtin_prefetch(soon + line, 0, 2);
        }
        scales_.begin(panel_scales_, first_ + nth, nth == 0);
        Scaling halves[2];
        load_scalings(scales_, panel_scales_, first_ + nth, halves);
        unpack_group<Format>(codes_ + nth * kBytes, halves, vectors);
    }

   private:
    const char* codes_;
    const char* next_;
    const char* panel_scales_;
    Index first_;
    Index count_;
    Scales<Format> scales_;
};

}  // namespace
}  // namespace inferno

#endif
