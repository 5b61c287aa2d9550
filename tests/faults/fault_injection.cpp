// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD that lets the n-th call of a group of functions fail. Of own making, since libfiu cannot count
// calls, and strace -e inject, which can, needs ptrace and knows nothing of malloc and of stand-ins for CUDA's libraries.
//
//   OCTILE_FAULT=<group>:<n>:<errno>   the n-th call fails; <n>+ : the n-th and all that follow, as on a full disk
//   OCTILE_FAULT_STATE=<file>          16 bytes, shared by a process and its children: calls so far, and whether one failed
//
// Counting begins with main(): before it no program can answer.
#include "faults/fault_point.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

namespace {

struct Shared {
  std::atomic<std::uint64_t> calls;
  std::atomic<std::uint64_t> failed;
};

struct Plan {
  Shared* shared = nullptr;
  std::string_view group;
  std::uint64_t first = 0;
  bool and_all_after = false;
  int error = EIO;
};

Plan plan;  // NOLINT: written before main(), read only afterwards.

void read_plan() {
  const char* text = std::getenv("OCTILE_FAULT");
  const char* state = std::getenv("OCTILE_FAULT_STATE");
  const char* colon = text == nullptr ? nullptr : std::strchr(text, ':');
  if (colon == nullptr || state == nullptr) {
    return;
  }
  const long fd = ::syscall(SYS_openat, AT_FDCWD, state, O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) {
    return;
  }
  const long memory = ::syscall(SYS_mmap, nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::syscall(SYS_close, fd);
  char* end = nullptr;
  plan.group = {text, static_cast<std::size_t>(colon - text)};
  plan.first = std::strtoull(colon + 1, &end, 10);
  plan.and_all_after = *end == '+';
  end += plan.and_all_after ? 1 : 0;
  plan.error = *end == ':' ? std::atoi(end + 1) : EIO;
  plan.shared = memory == -1 ? nullptr : reinterpret_cast<Shared*>(memory);  // NOLINT(performance-no-int-to-ptr)
}

bool fails(std::string_view group) {
  if (plan.shared == nullptr || group != plan.group) {
    return false;
  }
  const std::uint64_t call = plan.shared->calls.fetch_add(1) + 1;
  if (call != plan.first && !(plan.and_all_after && call > plan.first)) {
    return false;
  }
  plan.shared->failed = 1;
  errno = plan.error;
  return true;
}

// The function of the same name behind this library.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

mode_t mode_of(int flags, va_list arguments) { return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0; }

int open_at(int directory, const char* path, int flags, mode_t mode) {
  return fails("open") ? -1 : static_cast<int>(::syscall(SYS_openat, directory, path, flags, mode));
}

ssize_t write_to(int fd, const void* data, std::size_t bytes) {
  // Standard streams have tests of their own, and an error that cannot be written cannot be looked for.
  return fd > STDERR_FILENO && fails("write") ? -1 : ::syscall(SYS_write, fd, data, bytes);
}

using Main = int(int, char**, char**);
Main* program_main = nullptr;  // NOLINT: written before main().

int counted_main(int argc, char** argv, char** environment) {
  read_plan();
  return program_main(argc, argv, environment);
}

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

bool octile_fault_point(const char* group) { return fails(group); }

int __libc_start_main(Main* entry, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(), void* stack) {
  program_main = entry;
  using Start = int(Main*, int, char**, void (*)(), void (*)(), void (*)(), void*);
  return next<Start>("__libc_start_main")(counted_main, argc, argv, init, fini, rtld_fini, stack);
}

void* malloc(std::size_t bytes) noexcept { return fails("malloc") ? nullptr : __libc_malloc(bytes); }
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  return fails("malloc") ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept { return fails("malloc") ? nullptr : __libc_realloc(memory, bytes); }
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return fails("malloc") ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  *memory = fails("malloc") ? nullptr : __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at(directory, path, flags, mode);
}
// What _FORTIFY_SOURCE makes of calls whose flags or sizes the compiler does not know.
int __open_2(const char* path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
FILE* fopen(const char* path, const char* mode) {
  return fails("open") ? nullptr : next<FILE*(const char*, const char*)>("fopen")(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  return fails("open") ? nullptr : next<FILE*(const char*, const char*)>("fopen64")(path, mode);
}
DIR* opendir(const char* path) { return fails("open") ? nullptr : next<DIR*(const char*)>("opendir")(path); }
DIR* fdopendir(int fd) { return fails("open") ? nullptr : next<DIR*(int)>("fdopendir")(fd); }

ssize_t read(int fd, void* data, std::size_t bytes) { return fails("read") ? -1 : ::syscall(SYS_read, fd, data, bytes); }
ssize_t __read_chk(int fd, void* data, std::size_t bytes, std::size_t) { return read(fd, data, bytes); }
ssize_t pread(int fd, void* data, std::size_t bytes, off_t offset) {
  return fails("read") ? -1 : ::syscall(SYS_pread64, fd, data, bytes, offset);
}
ssize_t pread64(int fd, void* data, std::size_t bytes, off64_t offset) { return pread(fd, data, bytes, offset); }
ssize_t __pread_chk(int fd, void* data, std::size_t bytes, off_t offset, std::size_t) {
  return pread(fd, data, bytes, offset);
}
ssize_t __pread64_chk(int fd, void* data, std::size_t bytes, off64_t offset, std::size_t) {
  return pread(fd, data, bytes, offset);
}
ssize_t write(int fd, const void* data, std::size_t bytes) { return write_to(fd, data, bytes); }
ssize_t send(int fd, const void* data, std::size_t bytes, int flags) {
  return fails("socket") ? -1 : ::syscall(SYS_sendto, fd, data, bytes, flags, nullptr, 0);
}
ssize_t recv(int fd, void* data, std::size_t bytes, int flags) {
  return fails("socket") ? -1 : ::syscall(SYS_recvfrom, fd, data, bytes, flags, nullptr, nullptr);
}
ssize_t __recv_chk(int fd, void* data, std::size_t bytes, std::size_t, int flags) { return recv(fd, data, bytes, flags); }
int socketpair(int domain, int type, int protocol, int* ends) noexcept {
  return fails("socket") ? -1 : static_cast<int>(::syscall(SYS_socketpair, domain, type, protocol, ends));
}
int fsync(int fd) { return fails("fsync") ? -1 : static_cast<int>(::syscall(SYS_fsync, fd)); }
int rename(const char* from, const char* to) noexcept {
  return fails("rename") ? -1 : static_cast<int>(::syscall(SYS_rename, from, to));
}
int unlink(const char* path) noexcept { return fails("unlink") ? -1 : static_cast<int>(::syscall(SYS_unlink, path)); }
int mkdir(const char* path, mode_t mode) noexcept {
  return fails("mkdir") ? -1 : static_cast<int>(::syscall(SYS_mkdir, path, mode));
}
int flock(int fd, int operation) noexcept {
  return fails("flock") ? -1 : static_cast<int>(::syscall(SYS_flock, fd, operation));
}
int ftruncate(int fd, off_t size) noexcept {
  return fails("truncate") ? -1 : static_cast<int>(::syscall(SYS_ftruncate, fd, size));
}
int ftruncate64(int fd, off64_t size) noexcept { return ftruncate(fd, size); }
int fstat(int fd, struct stat* status) noexcept {
  return fails("stat") ? -1 : static_cast<int>(::syscall(SYS_fstat, fd, status));
}
int fstat64(int fd, struct stat64* status) noexcept {
  return fails("stat") ? -1 : static_cast<int>(::syscall(SYS_fstat, fd, status));
}
int stat(const char* path, struct stat* status) noexcept {
  return fails("stat") ? -1 : static_cast<int>(::syscall(SYS_stat, path, status));
}
int stat64(const char* path, struct stat64* status) noexcept {
  return fails("stat") ? -1 : static_cast<int>(::syscall(SYS_stat, path, status));
}

void* mmap(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return fails("mmap") ? MAP_FAILED
                       : reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}
void* mmap64(void* address, std::size_t bytes, int protection, int flags, int fd, off64_t offset) noexcept {
  return mmap(address, bytes, protection, flags, fd, offset);
}

// The clock of the day shows 1970 where the others fail; the one that durations are measured with cannot jump.
int clock_gettime(clockid_t clock, struct timespec* time) noexcept {
  if (clock == CLOCK_REALTIME && fails("clock")) {
    *time = {};
    return 0;
  }
  return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
}

void* dlopen(const char* path, int mode) noexcept {
  return fails("dlopen") ? nullptr : next<void*(const char*, int)>("dlopen")(path, mode);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) noexcept {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  return fails("thread") ? EAGAIN : next<Create>("pthread_create")(thread, attributes, start, argument);
}
int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                char* const* argv, char* const* environment) {
  using Spawn =
      int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*);
  return fails("spawn") ? EAGAIN : next<Spawn>("posix_spawn")(pid, path, actions, attributes, argv, environment);
}

}  // extern "C"
