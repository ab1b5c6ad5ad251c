// Rows of a packed weight, unpacked.
#include "families.h"
#include "linear_codes.h"
#include "linear_inputs.h"

namespace inferno::INFERNO_LEVEL {
namespace {

// An output's 4 bytes of some weight vectors, side by side: its values for up to 32 inputs.
struct Words {
    alignas(64) std::uint32_t of[kGroup] = {};
};

struct Values {
    F low, high;
};

Words gather(const char* lane, Index first, Index count) {
    Words words;
    for (Index w = 0; w < count; ++w) {
        __builtin_memcpy(&words.of[w], lane + (first + w) * kVector, 4);
    }
    return words;
}

Words gather_nibbles(const char* lane, Index group) {
    const Words packed = gather(lane, group * 4, 4);
    Words words;
    for (Index w = 0; w < 4; ++w) {
        words.of[2 * w] = packed.of[w] & 0x0f0f0f0f;
        words.of[2 * w + 1] = packed.of[w] >> 4 & 0x0f0f0f0f;
    }
    return words;
}

Words gather_codes(const Weight& weight, const char* lane, Index group) {
    if (weight.packing == Packing::int8) return gather(lane, group * 8, 8);
    Words words = gather_nibbles(lane, group);
    if (weight.packing == Packing::mxfp4) {
        char* bytes = reinterpret_cast<char*>(words.of);
        store_vector(bytes, e2m1_values(load_int_aligned(bytes)));
    }
    return words;
}

float group_scale(const Weight& weight, Index output, Index group) {
    const Index first = (output / kPanel * num_groups(weight.inputs) + group) * kPanel;
    const char* scales = static_cast<const char*>(weight.scales);
    float all[kPanel];
    if (weight.packing == Packing::mxfp4) {
        store(all, mul(E8m0Scales::load(scales + first), splat(0.5f)));
    } else {
        store(all, Bf16Scales::load(scales + first * 2));
    }
    return all[output % kPanel];
}

// Inputs [32 group, 32 group + count) of an output.
Values load_values(const Weight& weight, Index output, Index group, Index count) {
    const char* lane = static_cast<const char*>(weight.data) +
                       output / kPanel * panel_bytes(weight) + output % kPanel * 4;
    if (weight.packing == Packing::f32) {
        const Words words = gather(lane, group * kGroup, count);
        const float* values = reinterpret_cast<const float*>(words.of);
        return {load(values), load(values + 16)};
    }
    if (weight.packing == Packing::bf16) {
        const Words words = gather(lane, group * kGroup / 2, (count + 1) / 2);
        const std::uint16_t* values = reinterpret_cast<const std::uint16_t*>(words.of);
        return {load_bf16(values), load_bf16(values + 16)};
    }
    const Words words = gather_codes(weight, lane, group);
    const std::uint8_t* codes = reinterpret_cast<const std::uint8_t*>(words.of);
    const I offset = splat_int(-code_offset(weight.packing));
    const F scale = splat(group_scale(weight, output, group));
    return {mul(to_float(add_int(load_u8(codes), offset)), scale),
            mul(to_float(add_int(load_u8(codes + 16), offset)), scale)};
}

template <class Out>
void unpack_row(const Weight& weight, Index output, typename Out::Raw* out) {
    const Index width = weight.inputs;
    for (Index i = 0; i < width; i += kGroup) {
        const Values values = load_values(weight, output, i / kGroup, min(kGroup, width - i));
        store_part<Out>(out, i, width, values.low);
        if (i + 16 < width) store_part<Out>(out, i + 16, width, values.high);
    }
}

}  // namespace

void embedding(const std::int64_t* ids, const Weight& weight, const Rows& out, Team& team) {
    with_activation_type(out.type, [&](auto type) {
        using Out = decltype(type);
        typename Out::Raw* data = static_cast<typename Out::Raw*>(out.data);
        team.run(out.count, 1, [&](Index begin, Index end, int) {
            for (Index t = begin; t < end; ++t) {
                unpack_row<Out>(weight, ids[t], data + t * out.stride);
            }
        });
    });
}

}  // namespace inferno::INFERNO_LEVEL
