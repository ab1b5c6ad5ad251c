// The Python face of drawing tokens, which comes after a step and is never recorded.
#include <nanobind/nanobind.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/sampling/draw.h"
#include "kernels/sampling/philox.h"
#include "module.h"

namespace nb = nanobind;

namespace inferno {
namespace {

using Int64s = std::vector<std::int64_t>;

struct SamplingSpecs {
    std::vector<SamplingSpec> rows;
};

template <class T>
T* output(std::uintptr_t address) {
    return static_cast<T*>(pointer(address));
}

// Each row's fields come as numbers, so that a new one concerns the draw alone.
SamplingSpecs sampling_specs(nb::handle rows) {
    constexpr std::size_t kNumFields = sizeof(SamplingSpec) / sizeof(double);
    SamplingSpecs specs;
    for (nb::handle row : rows) {
        const std::vector<double> fields = elements<double>(row);
        if (fields.size() != kNumFields) {
            throw std::invalid_argument("a SamplingSpec has other fields here than in Python");
        }
        SamplingSpec spec;
        std::memcpy(&spec, fields.data(), sizeof spec);
        specs.rows.push_back(spec);
    }
    return specs;
}

void argmax_of_rows(nb::handle logits, std::uintptr_t allowed, std::uintptr_t peaks,
                    std::uintptr_t tokens) {
    const Rows input = rows(logits);
    run_now([&](Team& team) {
        argmax(input, array<std::uint32_t>(allowed), the_kernels(), output<float>(peaks),
               output<std::int64_t>(tokens), team);
    });
}

void random_numbers(nb::handle some_seeds, nb::handle some_indices, nb::handle some_positions,
                    std::int64_t purpose, std::int64_t lane, std::uintptr_t out) {
    const Int64s seeds = elements<std::int64_t>(some_seeds);
    const Int64s sequence_indices = elements<std::int64_t>(some_indices);
    const Int64s positions = elements<std::int64_t>(some_positions);
    const auto word = [](std::int64_t number) { return static_cast<std::uint32_t>(number); };
    for (std::size_t i = 0; i < seeds.size(); ++i) {
        output<double>(out)[i] =
            uniform(static_cast<std::uint64_t>(seeds[i]), word(sequence_indices.at(i)),
                    word(positions.at(i)), word(purpose), word(lane));
    }
}

void draw_tokens(nb::handle logits, std::uintptr_t allowed, std::uintptr_t peaks,
                 const SamplingSpecs& specs, std::uintptr_t uniform, std::uintptr_t tokens) {
    const Rows input = rows(logits);
    if (static_cast<std::int64_t>(specs.rows.size()) != input.count) {
        throw std::invalid_argument("each row needs a SamplingSpec");
    }
    run_now([&](Team& team) {
        draw(input, array<std::uint32_t>(allowed), array<float>(peaks), specs.rows,
             array<double>(uniform), the_kernels(), output<std::int64_t>(tokens), team);
    });
}

void log_total(nb::handle logits, std::uintptr_t peaks, std::uintptr_t out) {
    const Rows input = rows(logits);
    run_now([&](Team& team) {
        log_totals(input, array<float>(peaks), the_kernels(), output<double>(out), team);
    });
}

void likeliest(nb::handle logits, std::int64_t count, std::uintptr_t tokens) {
    const Rows input = rows(logits);
    run_now([&](Team& team) {
        top_tokens(input, count, the_kernels(), output<std::int64_t>(tokens), team);
    });
}

}  // namespace

void bind_draw(nb::module_& m) {
    nb::class_<SamplingSpecs>(m, "SamplingSpecs").def("__len__", [](const SamplingSpecs& specs) {
        return specs.rows.size();
    });
    m.def("sampling_specs", &sampling_specs);
    m.def("argmax", &argmax_of_rows);
    m.def("uniform", &random_numbers);
    m.def("draw", &draw_tokens);
    m.def("log_totals", &log_total);
    m.def("top_tokens", &likeliest);
}

}  // namespace inferno
