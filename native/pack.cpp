// Packing without quantization: elements change place.
#include "pack.h"

#include <cmath>
#include <cstring>

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

struct F32 {
    using Stored = float;
    static Stored from(float value) { return value; }
    static Stored from(std::uint16_t bf16) { return widened(bf16); }
};

struct BF16 {
    using Stored = std::uint16_t;
    static Stored from(float value) { return rounded(value); }
    static Stored from(std::uint16_t bf16) { return bf16; }
};

// Rows [begin, end) of the source; inputs go in units of `Unit` that lie side by side in a lane.
template <class To, int Unit, class From>
void pack_panels(const Rows& source, std::int64_t first, const Weight& target, Team& team) {
    const std::int64_t num_units = round_up(target.inputs, Unit) / Unit;
    const std::int64_t num_panels = round_up(source.count, kPanel) / kPanel;
    team.run(num_panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t p = begin; p < end; ++p) {
            auto* panel = static_cast<typename To::Stored*>(const_cast<void*>(target.data)) +
                          (first / kPanel + p) * num_units * kPanel * Unit;
            for (std::int64_t lane = 0; lane < kPanel; ++lane) {
                const std::int64_t row = p * kPanel + lane;
                const bool is_there = row < source.count;
                const From* from = static_cast<const From*>(source.data) + row * source.stride;
                for (std::int64_t i = 0; i < num_units * Unit; ++i) {
                    const bool is_filled = is_there && i < target.inputs;
                    panel[(i / Unit * kPanel + lane) * Unit + i % Unit] =
                        is_filled ? To::from(from[i]) : To::from(0.0f);
                }
            }
        }
    });
}

template <class To, int Unit>
void pack_any(const Rows& source, std::int64_t first, const Weight& target, Team& team) {
    if (source.type == Type::f32) {
        pack_panels<To, Unit, float>(source, first, target, team);
    } else {
        pack_panels<To, Unit, std::uint16_t>(source, first, target, team);
    }
}

// One row's group of 32: elements 8s + c and 8s + 4 + c meet in byte (s, c).
void place_group(const std::uint8_t* block, std::uint8_t* group, std::int64_t lane) {
    std::uint8_t codes[kGroup];
    for (std::int64_t j = 0; j < kGroup / 2; ++j) {
        codes[2 * j] = block[j] & 15;
        codes[2 * j + 1] = block[j] >> 4;
    }
    for (std::int64_t s = 0; s < 4; ++s) {
        for (std::int64_t c = 0; c < 4; ++c) {
            group[(s * kPanel + lane) * 4 + c] =
                static_cast<std::uint8_t>(codes[8 * s + c] | codes[8 * s + 4 + c] << 4);
        }
    }
}

}  // namespace

void pack(const Rows& source, std::int64_t first, const Weight& target, Team& team) {
    if (target.packing == Packing::f32) {
        pack_any<F32, 1>(source, first, target, team);
    } else {
        pack_any<BF16, 2>(source, first, target, team);
    }
}

void pack_mxfp4(const std::uint8_t* blocks, const std::uint8_t* scales, const Weight& target,
                Team& team) {
    const std::int64_t num_groups = target.inputs / kGroup;
    const std::int64_t num_panels = round_up(target.outputs, kPanel) / kPanel;
    team.run(num_panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
        static const std::uint8_t nothing[kGroup / 2] = {};
        for (std::int64_t p = begin; p < end; ++p) {
            auto* panel = static_cast<std::uint8_t*>(const_cast<void*>(target.data)) +
                          p * num_groups * kPanel * kGroup / 2;
            auto* panel_scales = static_cast<std::uint8_t*>(const_cast<void*>(target.scales)) +
                                 p * num_groups * kPanel;
            for (std::int64_t lane = 0; lane < kPanel; ++lane) {
                const std::int64_t row = p * kPanel + lane;
                const bool is_there = row < target.outputs;
                for (std::int64_t g = 0; g < num_groups; ++g) {
                    const std::int64_t block = row * num_groups + g;
                    place_group(is_there ? blocks + block * kGroup / 2 : nothing,
                                panel + g * kPanel * kGroup / 2, lane);
                    panel_scales[g * kPanel + lane] = is_there ? scales[block] : 0;
                }
            }
        }
    });
}

}  // namespace inferno
