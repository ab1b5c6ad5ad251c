// Refuses memory to callers in one range of code, and threads and the memory of a thread's pointers to
// everybody, when told so; preloaded.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<char*> first{nullptr}, last{nullptr};
std::atomic<long> num_left{-1};  // allocations that are still granted; below 0 nothing is refused
std::atomic<bool> has_refused{false}, are_threads_refused{false}, are_pointers_refused{false};

bool is_refused(void* caller) {
    if (num_left.load() < 0 || caller < first.load() || caller >= last.load()) return false;
    if (num_left.fetch_sub(1) > 0) return false;
    num_left.store(-1);  // one is refused, and no more
    has_refused.store(true);
    return true;
}

void* granted(std::size_t bytes, std::size_t alignment) {
    void* memory = nullptr;
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : throw std::bad_alloc();
}

}  // namespace

extern "C" {

void refuse_after(char* begin, char* end, long num_granted) {
    first = begin;
    last = end;
    has_refused = false;
    num_left = num_granted;
}

// Whether it has happened; from now on it won't.
bool stop_refusing() {
    num_left = -1;
    return has_refused;
}

long num_still_granted() { return num_left; }

void refuse_threads(bool are_refused) { are_threads_refused = are_refused; }

void refuse_pointers(bool are_refused) { are_pointers_refused = are_refused; }

int pthread_setspecific(pthread_key_t key, const void* value) {
    if (are_pointers_refused) return ENOMEM;
    static const auto real =
        reinterpret_cast<decltype(&pthread_setspecific)>(dlsym(RTLD_NEXT, "pthread_setspecific"));
    return real(key, value);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
    if (is_refused(__builtin_return_address(0))) return nullptr;
    return granted(bytes, alignment);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
    if (are_threads_refused) return EAGAIN;
    static const auto real =
        reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    return real(thread, attributes, run, argument);
}
}

void* operator new(std::size_t bytes) {
    if (is_refused(__builtin_return_address(0))) throw std::bad_alloc();
    return granted(bytes, alignof(std::max_align_t));
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
    if (is_refused(__builtin_return_address(0))) throw std::bad_alloc();
    return granted(bytes, static_cast<std::size_t>(alignment));
}
