// Which context a thread has, and what is recorded in one.
#include "context.h"

#include <pthread.h>

#include <new>
#include <stdexcept>

namespace inferno {
namespace {

std::atomic<const Kernels*> kernels{best_kernels()};

// A pointer of each thread. Not `thread_local`: memory for those of a library comes when a thread first
// asks for them, and the system ends a process that has none left.
class ThreadPointer {
   public:
    explicit ThreadPointer(void (*destroy)(void*)) {
        if (pthread_key_create(&key_, destroy) != 0) throw std::bad_alloc();
    }
    KernelContext* get() const { return static_cast<KernelContext*>(pthread_getspecific(key_)); }
    void set(KernelContext* context) const {
        if (pthread_setspecific(key_, context) != 0) throw std::bad_alloc();
    }

   private:
    pthread_key_t key_;
};

const ThreadPointer bound(nullptr);
const ThreadPointer unbound([](void* own) { delete static_cast<KernelContext*>(own); });

}  // namespace

const Kernels& the_kernels() { return *kernels.load(std::memory_order_relaxed); }

void set_kernels(const Kernels& chosen) { kernels.store(&chosen); }

KernelContext::KernelContext(int num_threads, Type beside_codes)
    : team(num_threads), beside_codes(beside_codes) {
    const bool has_bf16 = beside_codes == Type::bf16 && the_kernels().has_matrix_registers;
    if (beside_codes != Type::i8 && !has_bf16) {
        throw std::invalid_argument("this isa has no such activations beside codes");
    }
}

KernelContext& KernelContext::current() {
    if (KernelContext* found = bound.get()) return *found;
    if (KernelContext* found = unbound.get()) return *found;
    auto own = std::make_unique<KernelContext>(1);
    unbound.set(own.get());
    return *own.release();
}

void KernelContext::enter() {
    KernelContext* before = bound.get();
    if (before != this) {
        if (is_bound_.exchange(true)) throw std::logic_error("these kernels are in use elsewhere");
        previous_ = before;
        try {
            bound.set(this);
        } catch (...) {
            is_bound_.store(false);  // else no thread could ever enter it
            throw;
        }
    }
    ++num_entered_;
}

void KernelContext::leave() {
    if (bound.get() != this) throw std::logic_error("what was entered last is left first");
    if (--num_entered_ > 0) return;
    bound.set(previous_);
    is_bound_.store(false);
}

CapturedGraph::~CapturedGraph() { stop(); }

void CapturedGraph::start() {
    if (context_.recording) throw std::logic_error("a graph is being captured already");
    calls_.clear();
    context_.recording = this;
}

void CapturedGraph::stop() {
    if (context_.recording == this) context_.recording = nullptr;
}

void CapturedGraph::run() const {
    context_.enter();
    struct Left {
        KernelContext& context;
        ~Left() { context.leave(); }
    } left{context_};
    Team::Turn turn(context_.team);
    for (const Call& call : calls_) call(context_.team);
}

}  // namespace inferno
