// Weights as checkpoints store them: the codes of a scale group, and what scales them. MXFP4 as
// Hugging Face's files have it, its scales apart; the others are the blocks of GGUF (ggml's structs).
#pragma once

#include <cstring>

#include "contract/packings.h"

namespace inferno {
namespace {

using Byte = std::uint8_t;

// One code of each byte: the low four bits, or the high ones.
inline void read_nibbles(const Byte* bytes, std::int64_t count, int shift, Byte* codes) {
    for (std::int64_t j = 0; j < count; ++j) codes[j] = bytes[j] >> shift & 15;
}

// Of 16 bytes first all low halves and then all high ones.
inline void read_halves(const Byte* bytes, Byte* codes) {
    read_nibbles(bytes, 16, 0, codes);
    read_nibbles(bytes, 16, 4, codes + 16);
}

inline void add_fifth_bits(const Byte* bits, Byte* codes) {
    for (std::int64_t j = 0; j < kScaleGroup; ++j) codes[j] |= (bits[j / 8] >> j % 8 & 1) << 4;
}

// The codes of a block's scale group, one a byte. Each format that checkpoints store has its own.
inline void read_codes(Mxfp4Packing, const Byte* block, std::int64_t, Byte* codes) {
    for (std::int64_t j = 0; j < kScaleGroup / 2; j += 4) {  // four bytes, spread over eight
        std::uint32_t four;
        std::memcpy(&four, block + j, sizeof four);
        std::uint64_t spread = (four | static_cast<std::uint64_t>(four) << 16) & 0x0000ffff0000ffff;
        spread = (spread | spread << 8) & 0x00ff00ff00ff00ff;
        spread = (spread & 0x000f000f000f000f) | (spread << 4 & 0x0f000f000f000f00);
        std::memcpy(codes + 2 * j, &spread, sizeof spread);
    }
}

inline void read_codes(Q8_0Packing, const Byte* block, std::int64_t, Byte* codes) {
    for (std::int64_t j = 0; j < kScaleGroup; ++j) codes[j] = block[2 + j] ^ 0x80;
}

inline void read_codes(Q4_0Packing, const Byte* block, std::int64_t, Byte* codes) {
    read_halves(block + 2, codes);
}

inline void read_codes(Q4_1Packing, const Byte* block, std::int64_t, Byte* codes) {
    read_halves(block + 4, codes);
}

inline void read_codes(Q5_0Packing, const Byte* block, std::int64_t, Byte* codes) {
    read_halves(block + 6, codes);
    add_fifth_bits(block + 2, codes);
}

inline void read_codes(Q5_1Packing, const Byte* block, std::int64_t, Byte* codes) {
    read_halves(block + 8, codes);
    add_fifth_bits(block + 4, codes);
}

// Two groups share 32 bytes.
inline void read_codes(Q4KPacking, const Byte* block, std::int64_t group, Byte* codes) {
    read_nibbles(block + 16 + group / 2 * 32, 32, group % 2 * 4, codes);
}

inline void read_codes(Q5KPacking, const Byte* block, std::int64_t group, Byte* codes) {
    read_nibbles(block + 48 + group / 2 * 32, 32, group % 2 * 4, codes);
    for (std::int64_t j = 0; j < kScaleGroup; ++j) codes[j] |= (block[16 + j] >> group & 1) << 4;
}

// Four groups share 64 bytes of lower bits and 32 of upper ones.
inline void read_codes(Q6KPacking, const Byte* block, std::int64_t group, Byte* codes) {
    const std::int64_t four = group / 4, nth = group % 4;
    const Byte* upper = block + 128 + four * 32;
    read_nibbles(block + four * 64 + nth % 2 * 32, 32, nth / 2 * 4, codes);
    for (std::int64_t j = 0; j < kScaleGroup; ++j) codes[j] |= (upper[j] >> 2 * nth & 3) << 4;
}

// The six bits of a group's scale and of its offset, among the twelve bytes of a block of eight.
struct SixBits {
    Byte scale;
    Byte offset;
};

inline SixBits six_bits_of(const Byte* bytes, std::int64_t group) {
    const auto byte = [](int value) { return static_cast<Byte>(value); };
    if (group < 4) return {byte(bytes[group] & 63), byte(bytes[4 + group] & 63)};
    const Byte both = bytes[4 + group];
    return {byte((both & 15) | bytes[group - 4] >> 6 << 4),
            byte(both >> 4 | bytes[group] >> 6 << 4)};
}

// A block's scales, put into their lane of a panel's.
template <class Format>
void place_scales(const Byte* block, Byte* panel, std::int64_t lane) {
    const auto place_f16 = [&](const Byte* value, std::int64_t nth) {
        std::memcpy(panel + (nth * kPanel + lane) * 2, value, 2);
    };
    if constexpr (Format::kScaleType == ScaleType::f16) {
        place_f16(block, 0);
    } else if constexpr (Format::kScaleType == ScaleType::f16_offset) {
        place_f16(block, 0);
        place_f16(block + 2, 1);
    } else if constexpr (Format::kScaleType == ScaleType::six_bit_offset) {
        place_f16(block, 0);
        const Byte negative[2] = {block[2], static_cast<Byte>(block[3] ^ 0x80)};
        place_f16(negative, 1);
        Byte* const low = panel + 4 * kPanel;
        Byte* const high = low + 8 * kPanel;
        for (std::int64_t g = 0; g < 8; ++g) {
            const SixBits of = six_bits_of(block + 4, g);
            low[g * kPanel + lane] = static_cast<Byte>(of.scale | of.offset << 6);
            Byte& pair = high[g / 2 * kPanel + lane];
            const int upper = of.offset >> 2;
            pair = static_cast<Byte>(g % 2 ? pair | upper << 4 : upper);
        }
    } else {
        static_assert(Format::kScaleType == ScaleType::halves);
        place_f16(block + 208, 0);
        for (std::int64_t h = 0; h < 16; ++h) panel[(2 + h) * kPanel + lane] = block[192 + h];
    }
}

}  // namespace
}  // namespace inferno
