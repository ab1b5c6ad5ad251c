// What the files of the Python face share.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "kernels.h"
#include "pool.h"

namespace inferno {

// What the process has one of: the chosen level, the pool that owns the cores.
const Kernels& the_kernels();
Pool& the_pool();

inline void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

template <class T>
const T* array(std::uintptr_t address) {
    return reinterpret_cast<const T*>(address);
}

// A matrix as Python names it: (address, type, rows, columns, stride).
Rows rows(nanobind::handle matrix);

void bind_draw(nanobind::module_& m);

}  // namespace inferno
