// Rows of a packed weight, unpacked.
#include "codes.h"
#include "contract/isa_functions.h"

namespace inferno::INFERNO_ISA {
namespace {

struct Values {
    F low, high;
};

// One output of a weight: a lane of a panel.
template <class Format>
struct Output {
    const char* codes;
    const char* scales;
    Index lane;

    Output(const Weight& weight, Index id)
        : codes(static_cast<const char*>(weight.data) + id / kPanel * panel_bytes(weight)),
          scales(static_cast<const char*>(weight.scales) +
                 id / kPanel * panel_scale_bytes(weight)),
          lane(id % kPanel) {}

    // Inputs [32 group, 32 group + count), from its 4 bytes of each weight vector.
    Values load_floats(Index group, Index count) const {
        using Element = ElementOf<Format::kType>;
        constexpr Index kUnit = Format::kInputUnit;
        alignas(64) std::uint32_t words[kScaleGroup] = {};
        const char* const vectors = codes + group * kScaleGroup / kUnit * kVector;
        for (Index w = 0; w * kUnit < count; ++w) {
            __builtin_memcpy(&words[w], vectors + w * kVector + lane * 4, 4);
        }
        const auto* values = reinterpret_cast<const typename Element::Raw*>(words);
        return {Element::load(values), Element::load(values + 16)};
    }

    // The same of codes. Vectors are decoded whole: their lines are read anyway.
    Values load_codes(Index group) const {
        alignas(64) char vectors[8 * kVector];
        for (int pair = 0; pair < 4; ++pair) {
            I first, second;
            Codes<Format>::load(codes + group * Codes<Format>::kBytes, pair, first, second);
            store_vector(vectors + 2 * pair * kVector, first);
            store_vector(vectors + (2 * pair + 1) * kVector, second);
        }
        alignas(64) std::uint8_t bytes[kScaleGroup];
        for (Index v = 0; v < 8; ++v) {
            __builtin_memcpy(bytes + 4 * v, vectors + v * kVector + lane * 4, 4);
        }
        Scales<Format> of;
        of.begin(scales, group, true);
        if constexpr (Format::kHasHalves) {
            const F first = of_lane(of.load(scales, group, 0));
            const F second = of_lane(of.load(scales, group, 1));
            return {mul(wholes(bytes), first), mul(wholes(bytes + 16), second)};
        } else {
            F of_panel = of.load(scales, group);
            if constexpr (Format::kUnit != 1.0f) of_panel = mul(of_panel, splat(Format::kUnit));
            const F scale = of_lane(of_panel);
            if constexpr (Format::kHasOffset) {
                const F offset = of_lane(of.load_offset(scales, group));
                return {fma(wholes(bytes), scale, offset), fma(wholes(bytes + 16), scale, offset)};
            }
            return {mul(wholes(bytes), scale), mul(wholes(bytes + 16), scale)};
        }
    }

   private:
    static void store_vector(char* p, I bytes) {
        store(reinterpret_cast<float*>(p), as_float(bytes));
    }

    static F wholes(const std::uint8_t* bytes) {
        return to_float(add_int(load_u8(bytes), splat_int(-Format::kZeroPoint)));
    }

    F of_lane(F of_panel) const {
        float all[kPanel];
        store(all, of_panel);
        return splat(all[lane]);
    }
};

template <class Format, class Out>
void unpack_row(const Weight& weight, Index id, typename Out::Raw* out) {
    const Output<Format> output(weight, id);
    const Index width = weight.inputs;
    for (Index i = 0; i < width; i += kScaleGroup) {
        Values values;
        if constexpr (Format::kHasScales) {
            values = output.load_codes(i / kScaleGroup);
        } else {
            values = output.load_floats(i / kScaleGroup, min(kScaleGroup, width - i));
        }
        store_part<Out>(out, i, width, values.low);
        if (i + 16 < width) store_part<Out>(out, i + 16, width, values.high);
    }
}

}  // namespace

void embedding(const std::int64_t* ids, const Weight& weight, const Rows& out, Team& team) {
    with_packing(weight.packing, [&](auto format) {
        with_activation_type(out.type, [&](auto type) {
            using Out = decltype(type);
            typename Out::Raw* data = static_cast<typename Out::Raw*>(out.data);
            team.run(out.count, 1, [&](Index begin, Index end, int) {
                for (Index t = begin; t < end; ++t) {
                    unpack_row<decltype(format), Out>(weight, ids[t], data + t * out.stride);
                }
            });
        });
    });
}

}  // namespace inferno::INFERNO_ISA
