// The Python face of drawing tokens, which comes after a step and is never recorded.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <vector>

#include "draw.h"
#include "module.h"
#include "philox.h"

namespace nb = nanobind;

namespace inferno {
namespace {

using Int64s = std::vector<std::int64_t>;

struct DrawRules {
    std::vector<DrawRule> rows;
};

template <class T>
T* output(std::uintptr_t address) {
    return static_cast<T*>(pointer(address));
}

DrawRules draw_rules(const std::vector<double>& temperatures, const Int64s& top_ks,
                     const std::vector<double>& top_ps, const std::vector<double>& min_ps) {
    DrawRules rules;
    for (std::size_t i = 0; i < temperatures.size(); ++i) {
        rules.rows.push_back({temperatures[i], top_ks.at(i), top_ps.at(i), min_ps.at(i)});
    }
    return rules;
}

void find_largest(nb::handle logits, std::uintptr_t peaks, std::uintptr_t tokens) {
    const Rows input = rows(logits);
    nb::gil_scoped_release released;
    largest(input, the_kernels(), output<float>(peaks), output<std::int64_t>(tokens), the_pool());
}

void random_numbers(const Int64s& seeds, const Int64s& sample_indices, const Int64s& positions,
                    std::int64_t purpose, std::int64_t lane, std::uintptr_t out) {
    const auto word = [](std::int64_t number) { return static_cast<std::uint32_t>(number); };
    for (std::size_t i = 0; i < seeds.size(); ++i) {
        output<double>(out)[i] =
            uniform(static_cast<std::uint64_t>(seeds[i]), word(sample_indices.at(i)),
                    word(positions.at(i)), word(purpose), word(lane));
    }
}

void draw_tokens(nb::handle logits, std::uintptr_t peaks, const DrawRules& rules,
                 std::uintptr_t uniform, std::uintptr_t tokens) {
    const Rows input = rows(logits);
    if (static_cast<std::int64_t>(rules.rows.size()) != input.count) {
        throw std::invalid_argument("each row needs a rule");
    }
    nb::gil_scoped_release released;
    draw(input, array<float>(peaks), rules.rows, array<double>(uniform), the_kernels(),
         output<std::int64_t>(tokens), the_pool());
}

void log_total(nb::handle logits, std::uintptr_t peaks, std::uintptr_t out) {
    const Rows input = rows(logits);
    nb::gil_scoped_release released;
    log_totals(input, array<float>(peaks), the_kernels(), output<double>(out), the_pool());
}

void likeliest(nb::handle logits, std::int64_t count, std::uintptr_t tokens) {
    const Rows input = rows(logits);
    nb::gil_scoped_release released;
    top_tokens(input, count, the_kernels(), output<std::int64_t>(tokens), the_pool());
}

}  // namespace

void bind_draw(nb::module_& m) {
    nb::class_<DrawRules>(m, "DrawRules").def("__len__", [](const DrawRules& rules) {
        return rules.rows.size();
    });
    m.def("draw_rules", &draw_rules);
    m.def("largest", &find_largest);
    m.def("uniform", &random_numbers);
    m.def("draw", &draw_tokens);
    m.def("log_totals", &log_total);
    m.def("top_tokens", &likeliest);
}

}  // namespace inferno
