// The Python face: plain pointers and sizes in, kernels run, and a step's calls recorded for replay.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "module.h"
#include "contract/kernels.h"
#include "kernels/linear/pack.h"
#include "kernels/moe/route.h"
#include "runtime/checksum.h"
#include "runtime/prefault.h"

namespace nb = nanobind;
using namespace inferno;

namespace inferno {

Rows rows(nb::handle matrix) {
    nb::tuple t = nb::borrow<nb::tuple>(matrix);
    return {pointer(nb::cast<std::uintptr_t>(t[0])), static_cast<Type>(nb::cast<int>(t[1])),
            nb::cast<std::int64_t>(t[2]), nb::cast<std::int64_t>(t[3]),
            nb::cast<std::int64_t>(t[4])};
}

}  // namespace inferno

namespace {

template <class F>
void submit(F&& call) {
    KernelContext& context = KernelContext::current();
    if (context.recording) context.recording->add(call);
    run_now(call);
}

// A vector that may be absent: None, or (address, type).
Optional optional(nb::handle vector) {
    if (vector.is_none()) return {nullptr, Type::f32};
    nb::tuple t = nb::borrow<nb::tuple>(vector);
    return {pointer(nb::cast<std::uintptr_t>(t[0])), static_cast<Type>(nb::cast<int>(t[1]))};
}

void set_isa(const std::string& name) {
    const Kernels* found = find_kernels(name.c_str());
    if (!found) throw std::invalid_argument("this processor has no isa " + name);
    set_kernels(*found);
}

std::vector<std::string> isas() {
    std::vector<std::string> found;
    for (const Kernels* kernels : usable_kernels()) found.emplace_back(kernels->isa);
    return found;
}

Weight make_weight(int packing, std::uintptr_t data, std::uintptr_t scales, std::int64_t outputs,
                   std::int64_t inputs) {
    if (!is_packing(packing)) throw std::invalid_argument("no packing has this number");
    if (data % 64 != 0) throw std::invalid_argument("a packed weight must lie at a multiple of 64");
    return {static_cast<Packing>(packing), pointer(data), pointer(scales), outputs, inputs};
}

BatchView make_batch(std::int64_t num_requests, std::int64_t num_tokens, std::int64_t window,
                     std::uintptr_t query_starts, std::uintptr_t context_lens,
                     std::uintptr_t block_tables, std::int64_t table_width, std::uintptr_t slots,
                     std::uintptr_t positions, std::uintptr_t token_ids) {
    return {num_requests,
            num_tokens,
            window,
            array<std::int64_t>(query_starts),
            array<std::int64_t>(context_lens),
            array<std::int64_t>(block_tables),
            table_width,
            array<std::int64_t>(slots),
            array<std::int64_t>(positions),
            array<std::int64_t>(token_ids)};
}

CacheView make_cache(std::uintptr_t keys, std::uintptr_t values, std::uintptr_t key_scales,
                     std::uintptr_t value_scales, int type, std::int64_t num_blocks,
                     std::int64_t block_size, std::int64_t kv_heads, std::int64_t head_dim) {
    return {pointer(keys),
            pointer(values),
            static_cast<float*>(pointer(key_scales)),
            static_cast<float*>(pointer(value_scales)),
            static_cast<Type>(type),
            num_blocks,
            block_size,
            kv_heads,
            head_dim};
}

void pack_rows(nb::handle source, std::int64_t first, const Weight& target) {
    const Rows input = rows(source);
    const auto fill = is_quantized(target.packing) ? the_kernels().quantize : pack;
    run_now([&](Team& team) { fill(input, first, target, team); });
}

void pack_stored_weight(std::uintptr_t codes, std::uintptr_t scales, const Weight& target) {
    run_now([&](Team& team) {
        pack_stored(array<std::uint8_t>(codes), array<std::uint8_t>(scales), target, team);
    });
}

// As the context has them now: a recorded call keeps that.
LinearArgs linear_args(nb::handle x, const Weight& weight, nb::handle bias, nb::handle out) {
    LinearArgs args = {rows(x), weight, optional(bias), rows(out)};
    args.beside_codes = KernelContext::current().beside_codes;
    return args;
}

void linear(nb::handle x, const Weight& weight, nb::handle bias, nb::handle out) {
    const LinearArgs args = linear_args(x, weight, bias, out);
    submit([args](Team& team) { the_kernels().linear(args, team); });
}

// A weight of several ranges of rows, each in a packing of its own. Recorded calls share them.
struct RowRanges {
    std::shared_ptr<const std::vector<Weight>> list;
    std::int64_t outputs;
    std::int64_t inputs;
};

RowRanges weight_of_rows(const std::vector<Weight>& ranges) {
    if (ranges.empty()) throw std::invalid_argument("a weight needs a range of rows");
    std::int64_t outputs = 0;
    for (const Weight& range : ranges) {
        if (range.inputs != ranges[0].inputs) {
            throw std::invalid_argument("all rows of a weight must have as many inputs");
        }
        outputs += range.outputs;
    }
    return {std::make_shared<const std::vector<Weight>>(ranges), outputs, ranges[0].inputs};
}

void linear_by_ranges(nb::handle x, const RowRanges& weight, nb::handle bias, nb::handle out) {
    LinearArgs args = linear_args(x, weight.list->front(), bias, out);
    args.ranges = weight.list->data();
    args.num_ranges = static_cast<std::int64_t>(weight.list->size());
    submit([args, ranges = weight.list](Team& team) { the_kernels().linear(args, team); });
}

void gated_linear(nb::handle x, const Weight& weight, nb::handle bias, const Activation& activation,
                  nb::handle out) {
    if (weight.outputs % (2 * kPanel) != 0) {
        throw std::invalid_argument("a half of a gated weight must be whole panels");
    }
    LinearArgs args = linear_args(x, weight, bias, out);
    args.is_gated = true;
    args.activation = activation;
    submit([args](Team& team) { the_kernels().linear(args, team); });
}

// The weights of a mixture's experts, kept together because kernels index them by expert. Recorded
// calls share them.
struct Weights {
    std::shared_ptr<const std::vector<Weight>> list;
};

void experts(nb::handle x, std::uintptr_t chosen, std::uintptr_t weights, std::int64_t num_chosen,
             const Weights& gate_up, const Weights& down,
             nb::handle gate_up_bias, nb::handle down_bias, const Activation& activation,
             nb::handle out) {
    const ExpertsArgs args = {rows(x),
                              array<std::int64_t>(chosen),
                              array<float>(weights),
                              num_chosen,
                              static_cast<std::int64_t>(gate_up.list->size()),
                              gate_up.list->data(),
                              down.list->data(),
                              optional(gate_up_bias),
                              optional(down_bias),
                              activation,
                              rows(out),
                              KernelContext::current().beside_codes};
    submit([args, up = gate_up.list, down = down.list](Team& team) {
        the_kernels().experts(args, team);
    });
}

void route_tokens(nb::handle logits, std::int64_t num_chosen, bool renormalize,
                  std::uintptr_t experts, std::uintptr_t weights) {
    const Rows input = rows(logits);
    std::int64_t* chosen = static_cast<std::int64_t*>(pointer(experts));
    float* weight = static_cast<float*>(pointer(weights));
    submit([=](Team&) { route(input, num_chosen, renormalize, chosen, weight); });
}

void embedding(std::uintptr_t ids, const Weight& weight, nb::handle out) {
    const std::int64_t* id = array<std::int64_t>(ids);
    const Rows result = rows(out);
    submit([id, weight, result](Team& team) {
        the_kernels().embedding(id, weight, result, team);
    });
}

void cos_sin(const BatchView& batch, std::uintptr_t frequencies, std::int64_t half, float factor,
             std::uintptr_t out) {
    const float* frequency = array<float>(frequencies);
    float* result = static_cast<float*>(pointer(out));
    submit([=](Team& team) {
        the_kernels().cos_sin(batch, frequency, half, factor, result, team);
    });
}

void rms_norm(nb::handle x, std::uintptr_t residual, std::uintptr_t sum, nb::handle weight,
              float eps, nb::handle out) {
    const NormArgs args = {rows(x),         pointer(residual), pointer(sum),
                           optional(weight), eps,               rows(out)};
    submit([args](Team& team) { the_kernels().rms_norm(args, team); });
}

void rotate_and_store(nb::handle q, nb::handle k, nb::handle v, std::uintptr_t angles,
                      nb::handle q_norm, nb::handle k_norm, float eps, std::int64_t num_heads,
                      const BatchView& batch, const CacheView& cache, nb::handle out) {
    RotateArgs args = {rows(q),        rows(k), rows(v),   array<float>(angles), optional(q_norm),
                       optional(k_norm), eps,     num_heads, nullptr,              cache,
                       rows(out)};
    submit([args, batch](Team& team) mutable {
        args.batch = &batch;
        the_kernels().rotate_and_store(args, team);
    });
}

void attention(nb::handle q, std::int64_t num_heads, float scale, nb::handle sinks,
               const BatchView& batch, const CacheView& cache, nb::handle out) {
    AttentionArgs args = {rows(q), num_heads, scale, optional(sinks), nullptr, cache, rows(out)};
    submit([args, batch](Team& team) mutable {
        args.batch = &batch;
        the_kernels().attention(args, team);
    });
}

void gate(nb::handle x, const Activation& activation, nb::handle out) {
    const Rows input = rows(x);
    const Rows result = rows(out);
    submit([=](Team& team) { the_kernels().gate(input, activation, result, team); });
}

nb::dlpack::dtype dtype_of(Type type) {
    switch (type) {
        case Type::f32: return nb::dtype<float>();
        case Type::bf16: return {4 /* DLPack's bfloat */, 16, 1};
        case Type::f16: return {2 /* DLPack's float */, 16, 1};
        case Type::i8: return nb::dtype<std::int8_t>();
        default: return nb::dtype<std::int64_t>();
    }
}

// A torch tensor whose memory the context's arena gets back when its last view ends.
nb::object empty(nb::handle sizes, int type) {
    const std::vector<std::size_t> shape = elements<std::size_t>(sizes);
    std::size_t count = 1;
    for (std::size_t size : shape) count *= size;
    const std::size_t bytes = count * static_cast<std::size_t>(size_of(static_cast<Type>(type)));
    struct Loan {
        std::shared_ptr<Arena> arena;
        std::size_t bytes;
        void* memory = arena->take(bytes);
        ~Loan() { arena->give_back(memory, bytes); }
    };
    std::unique_ptr<Loan> loan(new Loan{KernelContext::current().arena(), bytes});
    nb::capsule owner(loan.get(), [](void* p) noexcept { delete static_cast<Loan*>(p); });
    void* memory = loan.release()->memory;
    return nb::cast(nb::ndarray<nb::pytorch>(memory, shape.size(), shape.data(), owner,
                                             nullptr, dtype_of(static_cast<Type>(type))));
}

using Addresses = std::vector<std::pair<std::uintptr_t, std::size_t>>;

std::vector<Memory> memory_at(const Addresses& addresses) {
    std::vector<Memory> memory;
    for (const auto& [begin, bytes] : addresses) {
        memory.push_back({static_cast<char*>(pointer(begin)), bytes});
    }
    return memory;
}

}  // namespace

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // at exit Python itself leaves objects of ours behind
    m.doc() = "inferno's CPU kernels; ops/cpu is the only caller";

    nb::class_<Weight>(m, "Weight")
        .def_ro("outputs", &Weight::outputs)
        .def_ro("inputs", &Weight::inputs);
    nb::class_<RowRanges>(m, "RowRanges")
        .def_ro("outputs", &RowRanges::outputs)
        .def_ro("inputs", &RowRanges::inputs);
    nb::class_<BatchView>(m, "Batch");
    nb::class_<CacheView>(m, "Cache");
    nb::class_<Activation>(m, "Activation");
    nb::class_<Weights>(m, "Weights");
    nb::class_<KernelContext>(m, "KernelContext")
        .def("__init__",
             [](KernelContext* self, int num_threads, int beside_codes) {
                 new (self) KernelContext(num_threads, static_cast<Type>(beside_codes));
             },
             nb::arg(), nb::arg() = static_cast<int>(Type::i8))
        // The binding keeps it alive: an interrupt that comes just before `__exit__` skips that, and
        // then the thread stays bound.
        .def("__enter__",
             [](nb::object self) {
                 nb::cast<KernelContext&>(self).enter();
                 self.inc_ref();
                 return self;
             })
        .def("__exit__",
             [](nb::handle self, nb::args /* problem */) {
                 nb::cast<KernelContext&>(self).leave();
                 self.dec_ref();
             })
        .def("release_memory", &KernelContext::release_memory)
        .def_prop_ro("num_threads", [](const KernelContext& c) { return c.team.num_threads(); })
        .def_prop_ro("arena_size", [](const KernelContext& c) { return c.arena()->size(); });
    nb::class_<CapturedGraph>(m, "CapturedGraph")
        .def(nb::init<KernelContext&>(), nb::keep_alive<1, 2>())
        .def("start", &CapturedGraph::start)
        .def("stop", &CapturedGraph::stop)
        .def("run", &CapturedGraph::run, nb::call_guard<nb::gil_scoped_release>())
        .def("__len__", &CapturedGraph::size);

    nb::class_<Prefault>(m, "Prefault")
        .def(
            "__init__",
            [](Prefault* self, const Addresses& parts, const Addresses& small,
               nb::handle /* owner */) {
                new (self) Prefault(memory_at(parts), memory_at(small));
            },
            nb::keep_alive<1, 4>())
        .def_prop_ro("is_done", &Prefault::is_done);
    m.def("can_collapse", &can_collapse);

    m.def("isas", &isas);
    m.def("isa", [] { return the_kernels().isa; });
    m.def("has_matrix_registers", [] { return the_kernels().has_matrix_registers; });
    m.def("set_isa", &set_isa);
    m.def("threads", [] { return KernelContext::current().team.num_threads(); });

    m.def("weight", &make_weight);
    m.def("weight_of_rows", &weight_of_rows);
    m.def("batch", &make_batch);
    m.def("cache", &make_cache);
    m.def("activation", [](int kind, float alpha, float limit) {
        return Activation{static_cast<Gate>(kind), alpha, limit};
    });
    m.def("weights", [](const std::vector<Weight>& list) {
        return Weights{std::make_shared<const std::vector<Weight>>(list)};
    });
    m.def("empty", &empty);
    m.def("xxh64", [](std::uintptr_t data, std::size_t bytes) {
        nb::gil_scoped_release released;
        return xxh64(pointer(data), bytes);
    });

    m.def("pack", &pack_rows);
    m.def("pack_stored", &pack_stored_weight);
    m.def("linear", &linear, nb::arg(), nb::arg(), nb::arg().none(), nb::arg());
    m.def("linear", &linear_by_ranges, nb::arg(), nb::arg(), nb::arg().none(), nb::arg());
    m.def("gated_linear", &gated_linear, nb::arg(), nb::arg(), nb::arg().none(), nb::arg(),
          nb::arg());
    m.def("experts", &experts, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
          nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg());
    m.def("route", &route_tokens);
    m.def("embedding", &embedding);
    m.def("cos_sin", &cos_sin);
    m.def("rms_norm", &rms_norm, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(),
          nb::arg());
    m.def("rotate_and_store", &rotate_and_store, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
          nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg());
    m.def("attention", &attention, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(),
          nb::arg(), nb::arg());
    m.def("gate", &gate);
    bind_draw(m);
}
