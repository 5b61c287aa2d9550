// SPDX-License-Identifier: Apache-2.0
// safetensors files as they are written, and as they are broken or made to harm.
#include "octile/model/safetensors.h"

#include "octile/core/format.h"

#include "support/files.h"
#include "support/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace octile {
namespace {

using ::testing::HasSubstr;

std::string read_bytes(const SafetensorsFile& file, const StoredTensor& tensor, std::string& error) {
  std::string bytes(static_cast<std::size_t>(tensor.bytes), '\0');
  if (auto ok = file.read(tensor, 0, std::as_writable_bytes(std::span(bytes))); !ok) {
    error = ok.error().message;
  }
  return bytes;
}

class Safetensors : public testing::Test {
 protected:
  std::string write(std::string_view content) const { return directory_.write("model.safetensors", content); }
  // Opening must fail with a short message that names the file and holds `message`.
  void expect_refused(std::string_view content, const std::string& message) const {
    const std::string path = write(content);
    const auto file = SafetensorsFile::open(path);
    ASSERT_FALSE(file) << "opened; wanted: " << message;
    EXPECT_THAT(file.error().message, HasSubstr(path));
    EXPECT_THAT(file.error().message, HasSubstr(message));
    EXPECT_LT(file.error().message.size(), 1000U);
  }
  void expect_header_refused(std::string_view header, std::string_view data, const std::string& message) const {
    expect_refused(test::safetensors_of(header, data), message);
  }

  test::TemporaryDirectory directory_;
};

TEST_F(Safetensors, TensorsAreFoundReadAndMappedAsTheyWereWritten) {
  const std::vector<test::TensorToWrite> written = {
      {"w", "F8_E4M3", {3, 2}, "abcdef"}, {"scale", "F32", {3, 1}, test::bytes_of<float>({1, 2, 3})},
      {"scalar", "BF16", {}, "xy"},       {"empty", "F64", {0, 7}, ""},
      {"b", "I64", {1}, "12345678"},
  };
  const auto file = SafetensorsFile::open(write(test::safetensors_file(written)));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), written.size());
  const auto mapped = file->map();
  ASSERT_TRUE(mapped) << mapped.error().message;
  for (const test::TensorToWrite& wanted : written) {
    const StoredTensor* const tensor = file->find(wanted.name);
    ASSERT_NE(tensor, nullptr) << wanted.name;
    EXPECT_EQ(to_string(tensor->type), wanted.dtype);
    EXPECT_EQ(tensor->shape, wanted.shape);
    std::string error;
    EXPECT_EQ(read_bytes(*file, *tensor, error), wanted.bytes);
    EXPECT_EQ(error, "");
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapped->get() + tensor->begin), wanted.bytes.size()), wanted.bytes);
  }
  EXPECT_EQ(file->find("missing"), nullptr);
  EXPECT_EQ(file->find("__metadata__"), nullptr);
  EXPECT_EQ(describe(*file->find("scale")), "F32 [3, 1]");
}

TEST_F(Safetensors, APartOfATensorIsRead) {
  const auto file = SafetensorsFile::open(write(test::safetensors_file({{"a", "U8", {2}, "xy"}, {"b", "U8", {4}, "0123"}})));
  ASSERT_TRUE(file) << file.error().message;
  std::string middle(2, ' ');
  ASSERT_TRUE(file->read(*file->find("b"), 1, std::as_writable_bytes(std::span(middle))));
  EXPECT_EQ(middle, "12");
}

TEST_F(Safetensors, EveryTypeOfTheFormatIsKnownByItsSize) {
  const std::pair<const char*, std::size_t> types[] = {
      {"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8},     {"F8_E8M0", 8},     {"I16", 16},    {"U16", 16}, {"F16", 16},
      {"BF16", 16},   {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I32", 32},    {"U32", 32}, {"F32", 32},
      {"C64", 64},    {"F64", 64},        {"I64", 64},        {"U64", 64},
  };
  for (const auto& [name, bits] : types) {
    const std::string path = write(test::safetensors_file({{"t", name, {2, 4}, std::string(bits, '?')}}));
    const auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(to_string(file->tensors().front().type), std::string(name));
  }
}

TEST_F(Safetensors, AFileWithoutTensorsIsOne) {
  const auto file = SafetensorsFile::open(write(test::safetensors_of("{}", "")));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->tensors().empty());
}

TEST_F(Safetensors, AMappingOutlivesItsFileObject) {
  std::shared_ptr<const std::byte> mapped;
  {
    const auto file = SafetensorsFile::open(write(test::safetensors_file({{"a", "U8", {3}, "xyz"}})));
    ASSERT_TRUE(file) << file.error().message;
    mapped = *file->map();
  }
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapped.get()), 3), "xyz");
}

struct BadHeader {
  const char* header;
  const char* message;
};

TEST_F(Safetensors, HeadersThatBreakTheFormatAreRefusedWithTheReason) {
  // Behind each stand 8 bytes of data.
  const BadHeader table[] = {
      // No JSON, and no object.
      {"", "begins with '{', got nothing"},
      {" {}", "begins with '{', got \" \""},
      {"[]", "begins with '{', got \"[\""},
      {"7", "got \"7\""},
      {"{", "unexpected end of input"},
      {"{} {}", "line 1, column 4"},
      {"{\"a\": \xC3\x28}", "header: bad JSON"},
      {"{\"\xFF\": 0}", "UTF-8"},
      {"{'a': 1}", "line 1, column 2"},
      // Twice the same name, or the same key.
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       "the key \"a\" stands twice"},
      {R"({"a":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}})", "the key \"dtype\" stands twice"},
      // Depth.
      {R"({"a":{"dtype":"U8","shape":[[8]],"data_offsets":[0,8]}})", "nested deeper than 3"},
      {R"({"__metadata__":{"a":{"b":{}}}})", "nested deeper than 3"},
      // Entries.
      {R"({"a":[]})", "tensor \"a\": wanted an object"},
      {R"({"a":null})", "tensor \"a\": wanted an object with dtype, shape and data_offsets, got null"},
      {R"({"a":{}})", "dtype is missing"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,8]}})", "shape is missing"},
      {R"({"a":{"dtype":"U8","shape":[8]}})", "data_offsets is missing"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"strides":[1]}})", "got \"strides\" as well"},
      {R"({"__metadata__":[]})", "__metadata__: wanted an object of strings"},
      {R"({"__metadata__":{"n":1}})", "__metadata__: \"n\": wanted a string, got the number 1"},
      // Types.
      {R"({"a":{"dtype":"F8","shape":[8],"data_offsets":[0,8]}})", "got the string \"F8\""},
      {R"({"a":{"dtype":"u8","shape":[8],"data_offsets":[0,8]}})", "got the string \"u8\""},
      {R"({"a":{"dtype":8,"shape":[8],"data_offsets":[0,8]}})", "got the number 8"},
      // Shapes.
      {R"({"a":{"dtype":"U8","shape":8,"data_offsets":[0,8]}})", "shape: wanted an array of integers, got the number 8"},
      {R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})", "shape: wanted integers from 0"},
      {R"({"a":{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}})", "got the number 8.0"},
      {R"({"a":{"dtype":"U8","shape":["8"],"data_offsets":[0,8]}})", "got the string \"8\""},
      {R"({"a":{"dtype":"U8","shape":[true,8],"data_offsets":[0,8]}})", "got true"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8]}})", "shape: wanted integers from 0"},
      {R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,8]}})", "shape: wanted integers from 0"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", "does not fit 64 bits"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,8]}})", "does not fit 64 bits"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]}})", "does not fit 64 bits"},
      {R"({"a":{"dtype":"F4","shape":[15],"data_offsets":[0,8]}})", "a whole number of bytes, got 60 bits"},
      // Sizes against offsets.
      {R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,8]}})", "U8 [7] takes 7 bytes, but data_offsets [0, 8] hold 8"},
      {R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[0,8]}})", "F32 [8] takes 32 bytes"},
      {R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,8]}})", "U8 [] takes 1 bytes"},
      // Offsets.
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0]}})", "wanted [begin, end], got 1 numbers"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8,16]}})", "wanted [begin, end], got 3 numbers"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":{"0":8}}})", "data_offsets: wanted an array"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[-1,7]}})", "data_offsets: wanted integers from 0"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8.5]}})", "data_offsets: wanted integers from 0"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}})", "wanted begin <= end <= 8"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[1,9]}})", "wanted begin <= end <= 8"},
      {R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", "the bytes behind the header, got [0, 9]"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[9223372036854775800,9223372036854775807]}})",
       "wanted begin <= end"},
      // Places against each other.
      {R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       "tensors \"a\" and \"b\" overlap"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       "overlap"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
       "overlap"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       "no tensor holds the bytes from 3 to 4, before \"b\""},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", "no tensor holds the bytes from 0 to 4"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "the tensors end at byte 4, but 8 bytes"},
      {"{}", "the tensors end at byte 0, but 8 bytes"},
  };
  for (const BadHeader& bad : table) {
    SCOPED_TRACE(bad.header);
    expect_header_refused(bad.header, "01234567", bad.message);
  }
}

TEST_F(Safetensors, AHeaderOfDeepBracketsIsRefusedAtOnce) {
  expect_header_refused("{\"a\":" + std::string(3'000'000, '['), "", "nested deeper than 3");
}

TEST_F(Safetensors, NamesThatNobodyCanPrintAreShownCut) {
  const std::string name = std::string(3000, 'n') + "\\u0007";
  expect_header_refused("{\"" + name + "\": 1}", "", "...\": wanted an object");
}

TEST_F(Safetensors, FilesThatAreTooShortForTheirHeaderAreRefused) {
  expect_refused("", "got 0 bytes");
  expect_refused("1234567", "got 7 bytes");
  expect_refused(std::string(8, '\0'), "got nothing");
  const std::string whole = test::safetensors_of("{}", "");
  expect_refused(whole.substr(0, whole.size() - 1), "the header's length says 2 bytes, but 1 follow");
  // Lengths of up to 2^64 - 1.
  expect_refused(std::string(8, '\xFF'), "its length says 18446744073709551615");
  expect_refused(test::bytes_of<std::uint64_t>({100'000'001}), "its length says 100000001");
  expect_refused(test::bytes_of<std::uint64_t>({100'000'000}), "the header's length says 100000000 bytes, but 0 follow");
  expect_refused("PK\x03\x04 a zip, as pickled checkpoints are", "is this a safetensors file?");
}

TEST_F(Safetensors, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  const auto message = [](const std::string& path) {
    const auto file = SafetensorsFile::open(path);
    return file ? "opened" : file.error().message;
  };
  EXPECT_THAT(message(directory_.path()), HasSubstr("it is a directory"));
  EXPECT_THAT(message(directory_.file("missing")), HasSubstr("No such file"));
  const std::string fifo = directory_.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(message(fifo), HasSubstr("not a regular file"));
  EXPECT_THAT(message("/dev/zero"), HasSubstr("not a regular file"));
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = test::safetensors_file({{"a", "U8", {2}, "xy"}, {"b", "F16", {2, 1}, "0123"}});
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto file = SafetensorsFile::open(write(whole.substr(0, length)));
    ASSERT_FALSE(file) << length << " of " << whole.size() << " bytes";
    EXPECT_LT(file.error().message.size(), 1000U);
  }
  EXPECT_TRUE(SafetensorsFile::open(write(whole)));
}

TEST_F(Safetensors, AByteChangedAnywhereIsRefusedOrLeavesTensorsThatFillTheFile) {
  const std::string data = "xy0123";
  const std::string whole = test::safetensors_file({{"a", "U8", {2}, "xy"}, {"b", "F16", {2, 1}, "0123"}});
  const std::string path = write(whole);
  std::fstream bytes(path,
                     std::ios::in | std::ios::out | std::ios::binary);  // In place: files written anew take milliseconds.
  const auto put = [&bytes](std::size_t at, char byte) {
    bytes.seekp(static_cast<std::streamoff>(at));
    bytes.put(byte).flush();
  };
  int opened = 0;
  int refused = 0;
  for (std::size_t at = 0; at + data.size() < whole.size(); ++at) {
    std::vector<char> changes = {'\0', '"', '\\', '{', '}', '[', ']', ',', ':', '-', '.', '0', '9', 'e', '\xFF'};
    for (int bit = 0; bit < 8; ++bit) {
      changes.push_back(static_cast<char>(whole[at] ^ (1 << bit)));
    }
    for (const char change : changes) {
      put(at, change);
      const auto file = SafetensorsFile::open(path);
      if (!file) {
        ++refused;
        EXPECT_LT(file.error().message.size(), 1000U);
        continue;
      }
      ++opened;
      // A name or a type may have become another, but what is handed out is the data, whole and in order.
      std::string together;
      std::string error;
      for (const StoredTensor& tensor : file->tensors()) {
        std::int64_t bits = bits_of(tensor.type);
        for (const std::int64_t size : tensor.shape) {
          bits *= size;
        }
        ASSERT_EQ(bits, tensor.bytes * 8) << describe(tensor);
        ASSERT_EQ(tensor.begin, static_cast<std::int64_t>(together.size()));
        together += read_bytes(*file, tensor, error);
        ASSERT_EQ(error, "");
      }
      ASSERT_EQ(together, data) << "byte " << at << " set to " << static_cast<int>(change);
    }
    put(at, whole[at]);
  }
  EXPECT_GT(opened, 50);
  EXPECT_GT(refused, 1000);
}

TEST_F(Safetensors, AFileThatShrinksOrIsWrittenToIsNoticed) {
  const std::string path = write(test::safetensors_file({{"a", "U8", {4}, "0123"}, {"b", "U8", {4}, "4567"}}));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->check_unchanged());
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 1);
  std::string error;
  EXPECT_EQ(read_bytes(*file, *file->find("a"), error), "0123");
  EXPECT_EQ(error, "");
  read_bytes(*file, *file->find("b"), error);
  EXPECT_THAT(error, testing::AllOf(HasSubstr("tensor \"b\""), HasSubstr(path), HasSubstr("the file ends at byte")));
  const auto changed = file->check_unchanged();
  ASSERT_FALSE(changed);
  EXPECT_THAT(changed.error().message,
              HasSubstr("has changed since it was opened: it had " + std::to_string(size) + " bytes"));
  // The size restored, the content not.
  std::ofstream(path, std::ios::app | std::ios::binary) << '!';
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  const auto written = file->check_unchanged();
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("it was written to"));
}

TEST_F(Safetensors, AHundredThousandTensorsAreReadInLinearTime) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    header += format(R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i == 0 ? "" : ",", i, i, i + 1);
  }
  const auto file = SafetensorsFile::open(write(test::safetensors_of(header + "}", std::string(100'000, 'x'))));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->find("77777")->begin, 77777);
}

}  // namespace
}  // namespace octile
