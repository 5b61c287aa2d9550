// SPDX-License-Identifier: Apache-2.0
// liboctile_onednn.so: oneDNN's matmul behind a C interface (onednn_abi.h). Compiles against oneDNN 2.6 and newer 2.x
// and 3.x, whose interfaces differ only in how a primitive descriptor is made.
//
// oneDNN's memory objects are handles with a mutable pointer. Each matmul keeps its own three and sets their pointers at
// every call, which is why one matmul must not be executed by two threads at once; a weight keeps one that never changes
// (setting the pointer of a padded layout would write its padding again). oneDNN's own execute still makes small
// heap allocations (counted: 6 a call with 2.6.3); that is the vendor's, and the same for whoever calls it.
#include "octile/kernels/cpu/onednn_abi.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <string>

#if DNNL_CPU_RUNTIME != DNNL_RUNTIME_OMP
#error "this component wants a oneDNN whose CPU runtime is OpenMP"
#endif

// Both opaque to the caller.
struct OctileOnednnWeight {
  dnnl::memory packed;
};
struct OctileOnednnMatmul {
  dnnl::matmul primitive;
  dnnl::memory source;
  dnnl::memory destination;
  dnnl::memory scratchpad;
  std::string implementation;
  int threads;
};

namespace {

using dnnl::memory;

// The packed layout is chosen for this many rows and serves all others: oneDNN 2.6 to 3.2 prefer the same one at every M
// from 1 to 1024.
constexpr std::int64_t kLayoutRows = 64;

// The OpenMP library that oneDNN itself is bound to: this component and oneDNN look symbols up in the same order. Linking
// one at build time could bring a second OpenMP library into the process.
struct OpenMp {
  using Region = void (*)(void*);
  void (*parallel)(Region region, void* data, unsigned threads, unsigned flags) = nullptr;
  void (*set_num_threads)(int) = nullptr;
  int (*get_max_threads)() = nullptr;
  int (*get_thread_num)() = nullptr;
  int (*pause_resource_all)(int kind) = nullptr;
};

template <class Function>
bool resolve(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

const OpenMp* openmp() {
  static const OpenMp* const found = []() -> const OpenMp* {
    static OpenMp library;
    const bool complete =
        resolve(library.parallel, "GOMP_parallel") && resolve(library.set_num_threads, "omp_set_num_threads") &&
        resolve(library.get_max_threads, "omp_get_max_threads") && resolve(library.get_thread_num, "omp_get_thread_num");
    resolve(library.pause_resource_all, "omp_pause_resource_all");  // OpenMP 5; without it threads are never released.
    return complete ? &library : nullptr;
  }();
  return found;
}

// Sets the calling thread's number of OpenMP threads and puts the old one back: it is the caller's, not ours.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : previous_(openmp()->get_max_threads()) { openmp()->set_num_threads(threads); }
  ~ThreadCount() { openmp()->set_num_threads(previous_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int previous_;
};

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory::data_type type_of(int dtype) {
  return dtype == OCTILE_ONEDNN_BF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

dnnl::matmul::primitive_desc describe(const OctileOnednnShape& shape, std::int64_t m, const memory::desc& weights) {
  const memory::desc source({m, shape.k}, type_of(shape.dtype), memory::format_tag::ab);
  const memory::desc destination({m, shape.n}, memory::data_type::f32, memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), source, weights, destination, attributes};
#else
  return {dnnl::matmul::desc(source, weights, destination), attributes, engine()};
#endif
}

memory::desc packed_layout(const OctileOnednnShape& shape) {
  const memory::desc any({shape.k, shape.n}, type_of(shape.dtype), memory::format_tag::any);
  return describe(shape, kLayoutRows, any).weights_desc();
}

void say(OctileOnednnError* error, const char* text) { std::snprintf(error->text, sizeof(error->text), "%s", text); }

// Runs `work` with the shape's thread count; turns an exception into an error text.
template <class Work>
int guarded(int threads, OctileOnednnError* error, Work work) noexcept {
  try {
    const ThreadCount count(threads);
    work();
    return 0;
  } catch (const dnnl::error& e) {
    std::snprintf(error->text, sizeof(error->text), "oneDNN: %s (status %d)", e.what(), static_cast<int>(e.status));
  } catch (const std::exception& e) {
    say(error, e.what());
  } catch (...) {
    say(error, "oneDNN: an exception of unknown type");
  }
  return 1;
}

int packed_bytes(const OctileOnednnShape* shape, int64_t* bytes, OctileOnednnError* error) {
  return guarded(shape->threads, error, [&] { *bytes = static_cast<int64_t>(packed_layout(*shape).get_size()); });
}

int pack(const OctileOnednnShape* shape, const void* w, void* packed, OctileOnednnWeight** weight,
         OctileOnednnError* error) {
  return guarded(shape->threads, error, [&] {
    // w[n, k] row-major is the [k, n] operand of the product with strides (1, k).
    const memory::desc rows({shape->k, shape->n}, type_of(shape->dtype), memory::format_tag::ba);
    memory from(rows, engine(), const_cast<void*>(w));
    memory to(packed_layout(*shape), engine(), packed);
    // Of a small weight waiting for other threads takes longer than the work; cold timing packs thousands of them, and
    // beside other programs each wait is a time slice.
    const ThreadCount count(shape->k * shape->n <= OCTILE_ONEDNN_SMALL_WEIGHT ? 1 : shape->threads);
    dnnl::stream stream(engine());
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
    *weight = new OctileOnednnWeight{.packed = to};
  });
}

void destroy_weight(OctileOnednnWeight* weight) { delete weight; }

int create(const OctileOnednnShape* shape, OctileOnednnMatmul** matmul, OctileOnednnError* error) {
  return guarded(shape->threads, error, [&] {
    const dnnl::matmul::primitive_desc description = describe(*shape, shape->m, packed_layout(*shape));
    *matmul = new OctileOnednnMatmul{.primitive = dnnl::matmul(description),
                                     .source = memory(description.src_desc(), engine(), nullptr),
                                     .destination = memory(description.dst_desc(), engine(), nullptr),
                                     .scratchpad = memory(description.scratchpad_desc(), engine(), nullptr),
                                     .implementation = description.impl_info_str(),
                                     .threads = shape->threads};
  });
}

void destroy(OctileOnednnMatmul* matmul) { delete matmul; }

int64_t scratchpad_bytes(const OctileOnednnMatmul* matmul) {
  return static_cast<int64_t>(matmul->scratchpad.get_desc().get_size());
}

const char* implementation(const OctileOnednnMatmul* matmul) { return matmul->implementation.c_str(); }

int execute(OctileOnednnMatmul* matmul, const void* x, const OctileOnednnWeight* weight, float* y, void* scratchpad,
            OctileOnednnError* error) {
  return guarded(matmul->threads, error, [&] {
    matmul->source.set_data_handle(const_cast<void*>(x));
    matmul->destination.set_data_handle(y);
    matmul->scratchpad.set_data_handle(scratchpad);
    // The C call, since the C++ one builds a hash map for its arguments first.
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, matmul->source.get()},
                                         {DNNL_ARG_WEIGHTS, weight->packed.get()},
                                         {DNNL_ARG_DST, matmul->destination.get()},
                                         {DNNL_ARG_SCRATCHPAD, matmul->scratchpad.get()}};
    static const dnnl::stream stream(engine());
    dnnl::error::wrap_c_api(dnnl_primitive_execute(matmul->primitive.get(), stream.get(), 4, arguments),
                            "could not execute the matmul");
  });
}

// What parallel() passes to every thread of the region. `done` says again what OpenMP's fork and join already guarantee:
// ThreadSanitizer sees it, and not what happens inside an OpenMP library that it has not compiled.
struct Region {
  void (*work)(void* context, int thread) = nullptr;
  void* context = nullptr;
  std::atomic<int> done{-1};
};

void run_region(void* data) {
  auto* region = static_cast<Region*>(data);
  region->done.load(std::memory_order_acquire);
  region->work(region->context, openmp()->get_thread_num());
  region->done.fetch_add(1, std::memory_order_acq_rel);
}

int parallel(int threads, void (*work)(void* context, int thread), void* context) {
  Region region;
  region.work = work;
  region.context = context;
  region.done.store(0, std::memory_order_release);
  openmp()->parallel(run_region, &region, static_cast<unsigned>(threads), 0);
  return region.done.load(std::memory_order_acquire);
}

void release_threads() {
  if (openmp()->pause_resource_all != nullptr) {
    openmp()->pause_resource_all(1);  // omp_pause_soft: settings stay.
  }
}

std::string loaded_version() {
  const dnnl_version_t* version = dnnl_version();
  char text[48];
  std::snprintf(text, sizeof(text), "%d.%d.%d", version->major, version->minor, version->patch);
  return text;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const OctileOnednnApi* octile_onednn_api() {
  if (openmp() == nullptr) {
    return nullptr;
  }
  static const std::string version = loaded_version();
  static const OctileOnednnApi api = {.abi = OCTILE_ONEDNN_ABI,
                                      .version = version.c_str(),
                                      .packed_bytes = packed_bytes,
                                      .pack = pack,
                                      .destroy_weight = destroy_weight,
                                      .create = create,
                                      .destroy = destroy,
                                      .scratchpad_bytes = scratchpad_bytes,
                                      .implementation = implementation,
                                      .execute = execute,
                                      .parallel = parallel,
                                      .release_threads = release_threads};
  return &api;
}
