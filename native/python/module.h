// Helpers that the files of the Python face share.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "runtime/context.h"

namespace inferno {

inline void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

template <class T>
const T* array(std::uintptr_t address) {
    return reinterpret_cast<const T*>(address);
}

// The numbers of a Python sequence. nanobind's own casts end the process where memory runs out.
template <class T>
std::vector<T> elements(nanobind::handle sequence) {
    std::vector<T> values;
    values.reserve(nanobind::len(sequence));
    for (nanobind::handle value : sequence) values.push_back(nanobind::cast<T>(value));
    return values;
}

// A matrix as Python names it: (address, type, rows, columns, stride).
Rows rows(nanobind::handle matrix);

// Run what is never recorded, without the GIL.
template <class F>
void run_now(F&& call) {
    KernelContext& context = KernelContext::current();
    nanobind::gil_scoped_release released;
    Team::Turn turn(context.team);
    call(context.team);
}

void bind_draw(nanobind::module_& m);

}  // namespace inferno
