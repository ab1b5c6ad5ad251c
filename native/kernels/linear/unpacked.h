// What each row block's tiles would unpack for themselves, unpacked once for several of them.
#pragma once

#include "group_dots.h"
#include "simd/pairs.h"

namespace inferno {
namespace {

// From so many row blocks on scales are made floats, if eight groups share parts of them.
#if defined(__AVX512F__)
constexpr Index kPlainScalesFromBlocks = 3;
#else
constexpr Index kPlainScalesFromBlocks = 2;  // measured: 8 rows of Q4_K take 26 % less than from 3
#endif

// From so many on codes are made bytes too; 0: never. Measured: with AVX2, whose tiles have few rows,
// 32 to 256 rows of five and six bits take 15 to 28 % less, 256 rows of four bits 5 to 7 %; 8 rows of
// four bits would take 6 to 14 % more. Where dots are made of words, eight bits are taken apart: 32 to
// 512 rows take 4 to 11 % less, 8 rows would take 20 % more. With AVX-512 256 rows of five bits take 2
// to 6 % less; six bits, of which a tile has more rows, and four bits gain nothing.
template <class Format>
constexpr Index codes_from_blocks() {
#if defined(__AVX512F__)
    return Format::kBits == 5 ? 32 : 0;
#else
    if (Format::kBits == 8) return INFERNO_HAS_BYTE_DOTS ? 0 : 8;
    return Format::kBits == 4 ? 16 : 2;
#endif
}

template <class Format, bool has_codes>
struct Unpacked : Format {
    static constexpr bool kHasOwnCodes = has_codes;
    static constexpr bool kHasOwnScales = Scales<Format>::kAreEights;

    static constexpr int kBits = kHasOwnCodes ? 8 : Format::kBits;
    static constexpr bool kHasCodebook = Format::kHasCodebook && !kHasOwnCodes;
    static constexpr ScaleType kScaleType = !kHasOwnScales           ? Format::kScaleType
                                            : kHasWholeHalves<Format> ? ScaleType::word_pair
                                                                      : ScaleType::float_pair;
};

template <class Format, bool has_codes>
constexpr bool kHasSigns<Unpacked<Format, has_codes>> =
    has_codes && Format::kBits == 8;

template <class Format>
struct PackedAs {
    using Type = Format;
};
template <class Format, bool has_codes>
struct PackedAs<Unpacked<Format, has_codes>> {
    using Type = Format;
};

// Bytes of a scale group's codes as the weight has them.
template <class Format>
constexpr Index kPackedBytes = Codes<typename PackedAs<Format>::Type>::kBytes;

// Where panels begin; null: where the weight has them.
struct PanelParts {
    const char* codes;
    const char* scales;
};

// Two panels of a weight at most.
template <class Format, bool has_codes>
struct Unpacking {
    using Plain = Unpacked<Format, has_codes>;

    const Weight& weight;
    char* memory;

    static Index code_bytes(Index groups) {
        return Plain::kHasOwnCodes ? groups * Codes<Plain>::kBytes : 0;
    }
    static Index scale_bytes(Index groups) {
        return Plain::kHasOwnScales ? Scales<Plain>::bytes_of(groups) : 0;
    }
    static Index bytes(const Weight& weight) {
        const Index groups = num_scale_groups(weight.inputs);
        return 2 * (code_bytes(groups) + scale_bytes(groups));
    }

    PanelParts operator()(Index panel, Index other) const {
        const Index groups = num_scale_groups(weight.inputs);
        char* const scales = memory + 2 * code_bytes(groups);
        for (Index nth = 0; nth < (other == panel ? 1 : 2); ++nth) {
            const Index one = nth ? other : panel;
            if constexpr (Plain::kHasOwnCodes) {
                unpack_codes(one, groups, memory + nth * code_bytes(groups));
            }
            if constexpr (Plain::kHasOwnScales) {
                unpack_scales(one, groups, scales + nth * scale_bytes(groups));
                prefetch_scales_of(one + (other == panel + 1 ? 2 : 1));
            }
        }
        return {Plain::kHasOwnCodes ? memory : nullptr, Plain::kHasOwnScales ? scales : nullptr};
    }

   private:
    void unpack_codes(Index panel, Index groups, char* out) const {
        const char* codes =
            static_cast<const char*>(weight.data) + panel * groups * Codes<Format>::kBytes;
        for (Index g = 0; g < groups; ++g, codes += Codes<Format>::kBytes) {
            if constexpr (kHasSigns<Plain>) {
                unpack_signs<Plain>(codes, out);
                out += Codes<Plain>::kBytes;
                continue;
            }
#pragma GCC unroll 4
            for (int pair = 0; pair < 4; ++pair, out += 2 * kVector) {
                I first, second;
                Codes<Format>::load(codes, pair, first, second);
                store_int(out, first);
                store_int(out + kVector, second);
            }
        }
    }

    // Packed scales lie apart from the codes that tiles prefetch, and are read at once.
    INFERNO_INLINE void prefetch_scales_of(Index panel) const {
        const Index bytes = panel_scale_bytes(weight);
        const char* scales = static_cast<const char*>(weight.scales) + panel * bytes;
        for (Index line = 0; line < bytes; line += kVector) {
            __builtin_prefetch(scales + line, 0, 2);
        }
    }

    void unpack_scales(Index panel, Index groups, char* to) const {
        const char* scales =
            static_cast<const char*>(weight.scales) + panel * panel_scale_bytes(weight);
        auto* out = reinterpret_cast<float*>(to);
        Scales<Format> of;
        for (Index eight = 0; eight < groups; eight += 8) {
            of.begin(scales, eight, true);
#pragma GCC unroll 8
            for (Index g = 0; g < 8; ++g, out += size_of(Plain::kScaleType) / 4 * kPanel) {
                unpack_group(of, g, out);
            }
        }
    }

    // Of one of eight scale groups that have theirs together.
    INFERNO_INLINE static void unpack_group(const Scales<Format>& of, Index g, float* out) {
        if constexpr (kHasWholeHalves<Format>) {
            store_int(out, of.load_words(nullptr, g, 0));
            store_int(out + kPanel, of.load_words(nullptr, g, 1));
            store(out + 2 * kPanel, of.load_unit(nullptr, g));
        } else if constexpr (Format::kHasHalves) {
            store(out, of.load(nullptr, g, 0));
            store(out + kPanel, of.load(nullptr, g, 1));
        } else {
            store(out, of.load(nullptr, g));
            store(out + kPanel, of.load_offset(nullptr, g));
        }
    }
};

}  // namespace
}  // namespace inferno
