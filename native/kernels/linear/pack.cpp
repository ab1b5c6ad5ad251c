// Packing without quantization: elements change place.
#include "pack.h"

#include <cmath>
#include <cstring>

#include "stored.h"

namespace inferno {
namespace {

float widened(std::uint16_t bf16) {
    const std::uint32_t bits = static_cast<std::uint32_t>(bf16) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

std::uint16_t rounded(float value) {  // to nearest, ties to even
    if (std::isnan(value)) return 0x7fc0;
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <Type type>
struct Element;

template <>
struct Element<Type::f32> {
    using Stored = float;
    static Stored from(float value) { return value; }
    static Stored from(std::uint16_t bf16) { return widened(bf16); }
};

template <>
struct Element<Type::bf16> {
    using Stored = std::uint16_t;
    static Stored from(float value) { return rounded(value); }
    static Stored from(std::uint16_t bf16) { return bf16; }
};

// Inputs go in units that lie side by side in a lane.
template <class Format, class From>
void pack_panels(const Rows& source, std::int64_t first, const Weight& target, Team& team) {
    using To = Element<Format::kType>;
    constexpr std::int64_t kUnit = Format::kInputUnit;
    const std::int64_t num_units = round_up(target.inputs, kUnit) / kUnit;
    const std::int64_t num_panels = round_up(source.count, kPanel) / kPanel;
    team.run(num_panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t p = begin; p < end; ++p) {
            auto* panel = static_cast<typename To::Stored*>(const_cast<void*>(target.data)) +
                          (first / kPanel + p) * num_units * kPanel * kUnit;
            for (std::int64_t lane = 0; lane < kPanel; ++lane) {
                const std::int64_t row = p * kPanel + lane;
                const bool is_there = row < source.count;
                const From* from = static_cast<const From*>(source.data) + row * source.stride;
                for (std::int64_t i = 0; i < num_units * kUnit; ++i) {
                    const bool is_filled = is_there && i < target.inputs;
                    panel[(i / kUnit * kPanel + lane) * kUnit + i % kUnit] =
                        is_filled ? To::from(from[i]) : To::from(0.0f);
                }
            }
        }
    });
}

// One row's codes of a scale group, put into their lane, four of them at a time.
template <int kBits>
void place_codes(const std::uint8_t* codes, std::uint8_t* group, std::int64_t lane) {
    static_assert(kBits == 8 || (kBits >= 4 && kBits <= 6));
    std::uint32_t fours[kScaleGroup / 4];
    std::memcpy(fours, codes, sizeof fours);
    const auto place = [&](std::int64_t nth, std::uint32_t four) {
        std::memcpy(group + (nth * kPanel + lane) * 4, &four, sizeof four);
    };
    if constexpr (kBits == 8) {
        for (std::int64_t s = 0; s < 8; ++s) place(s, fours[s]);
    } else {
        constexpr std::uint32_t kLow = 0x0f0f0f0f;
        for (std::int64_t s = 0; s < 4; ++s) {
            place(s, (fours[2 * s] & kLow) | (fours[2 * s + 1] & kLow) << 4);
        }
    }
    if constexpr (kBits == 5 || kBits == 6) {
        constexpr std::int64_t kUpper = kBits - 4, kShared = 8 / kUpper;
        for (std::int64_t t = 0; t < kUpper; ++t) {
            std::uint32_t four = 0;
            for (std::int64_t s = 0; s < kShared; ++s) {
                four |= (fours[t * kShared + s] >> 4 & 0x03030303) << s * kUpper;
            }
            place(4 + t, four);
        }
    }
}

// The last panel is filled up with rows of zeros. Scales stand in blocks where none are given.
template <class Format>
void pack_stored_panel(const std::uint8_t* stored, const std::uint8_t* scales,
                       const Weight& target, std::int64_t p) {
    constexpr std::int64_t kGroupBytes = kPanel * kScaleGroup * Format::kBits / 8;
    constexpr std::int64_t kBlockGroups = Format::kStoredInputs / kScaleGroup;
    constexpr std::int64_t kScaleBytes = size_of(Format::kScaleType);
    const std::int64_t num_blocks = target.inputs / Format::kStoredInputs;
    auto* panel =
        static_cast<std::uint8_t*>(const_cast<void*>(target.data)) + p * panel_bytes(target);
    auto* panel_scales = static_cast<std::uint8_t*>(const_cast<void*>(target.scales)) +
                         p * panel_scale_bytes(target);
    for (std::int64_t lane = 0; lane < kPanel; ++lane) {
        const std::int64_t row = p * kPanel + lane;
        for (std::int64_t b = 0; b < num_blocks; ++b) {
            const std::int64_t nth = row * num_blocks + b;
            const std::uint8_t zeros[Format::kStoredBytes] = {};
            const bool is_there = row < target.outputs;
            const std::uint8_t* block = is_there ? stored + nth * Format::kStoredBytes : zeros;
            for (std::int64_t g = 0; g < kBlockGroups; ++g) {
                std::uint8_t codes[kScaleGroup];
                read_codes(Format{}, block, g, codes);
                place_codes<Format::kBits>(codes, panel + (b * kBlockGroups + g) * kGroupBytes,
                                           lane);
            }
            std::uint8_t* block_scales = panel_scales + b * kPanel * kScaleBytes;
            if constexpr (Format::kHasScalesApart) {
                block_scales[lane] = is_there ? scales[nth] : 0;
            } else {
                place_scales<Format>(block, block_scales, lane);
            }
        }
    }
}

}  // namespace

void pack(const Rows& source, std::int64_t first, const Weight& target, Team& team) {
    with_packing(target.packing, [&](auto format) {
        using Format = decltype(format);
        if constexpr (!Format::kHasScales) {
            if (source.type == Type::f32) {
                pack_panels<Format, float>(source, first, target, team);
            } else {
                pack_panels<Format, std::uint16_t>(source, first, target, team);
            }
        }
    });
}

void pack_stored(const std::uint8_t* codes, const std::uint8_t* scales, const Weight& target,
                 Team& team) {
    with_packing(target.packing, [&](auto format) {
        using Format = decltype(format);
        if constexpr (Format::kStoredInputs > 0) {
            team.run(num_panels(target), 1, [&](std::int64_t begin, std::int64_t end, int) {
                for (std::int64_t p = begin; p < end; ++p) {
                    pack_stored_panel<Format>(codes, scales, target, p);
                }
            });
        }
    });
}

}  // namespace inferno
