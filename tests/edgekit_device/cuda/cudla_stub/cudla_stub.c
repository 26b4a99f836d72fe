/* A strict stand-in for libcudla, hybrid mode only. It knows the public header's layouts on its
 * own (the assertions), writes each call to $EDGEKIT_CUDLA_STUB_LOG and refuses wrong orders.
 * Its loadables: "STUBDLA1", two counts (u32), then the descriptors of inputs and outputs. A task
 * adds one to each byte of the first input and writes it to every output.
 * $EDGEKIT_CUDLA_STUB_FAIL="FUNCTION:N:STATUS" lets the Nth call of a function fail. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char name[81];
  uint64_t size, n, c, h, w;
  uint8_t dataFormat, dataType, dataCategory, pixelFormat, pixelMapping;
  uint32_t stride[8];
} Descriptor;
typedef union {
  uint32_t count;
  Descriptor *descriptors;
} Attribute;
typedef union {
  uint8_t unified;
  uint32_t version;
} DeviceAttribute;
typedef struct Device Device;
typedef struct {
  Device *device;
  uint32_t inputs, outputs;
  Descriptor *descriptors;
  int gone;
} Module;
typedef struct {
  Module *module;
  uint64_t *const *outputTensor;
  uint32_t numOutputTensors, numInputTensors;
  const uint64_t *const *inputTensor;
  const void *waitEvents;
  void *signalEvents;
} Task;
_Static_assert(sizeof(Descriptor) == 168 && offsetof(Descriptor, size) == 88, "size");
_Static_assert(offsetof(Descriptor, dataFormat) == 128, "dataFormat");
_Static_assert(offsetof(Descriptor, stride) == 136, "stride");
_Static_assert(sizeof(Task) == 48 && offsetof(Task, inputTensor) == 24, "task");
_Static_assert(sizeof(Attribute) == 8 && sizeof(DeviceAttribute) == 4, "attributes");

typedef struct {
  const uint8_t *ptr;
  size_t size;
  uint64_t *mapped;
} Mapping;
#define MOST 64
struct Device {
  int open;
  uint64_t number;
  Module *module;
  Mapping mappings[MOST];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char counted[32][32];
static int counts[32];

/* logs a call; the status that it must fail with, or 0 */
static int called(const char *name, const char *text) {
  const char *path = getenv("EDGEKIT_CUDLA_STUB_LOG"), *fail = getenv("EDGEKIT_CUDLA_STUB_FAIL");
  int status = 0, i = 0;
  pthread_mutex_lock(&lock);
  if (path) {
    FILE *file = fopen(path, "a");
    fprintf(file, "%s%s%s\n", name, *text ? " " : "", text);
    fclose(file);
  }
  if (fail) {
    char wanted[32] = "";
    int number = 0, with = 0;
    sscanf(fail, "%31[^:]:%d:%i", wanted, &number, &with);
    while (i < 31 && *counted[i] && strcmp(counted[i], name)) i++;
    snprintf(counted[i], sizeof counted[i], "%s", name);
    if (!strcmp(wanted, name) && ++counts[i] == number) status = with;
  } else {
    memset(counts, 0, sizeof counts);
  }
  pthread_mutex_unlock(&lock);
  return status;
}
static int wrong(const char *text, int status) {
  called("WRONG", text);
  return status;
}
#define CALLED(name, text) \
  do { \
    int failed = called(name, text); \
    if (failed) return failed; \
  } while (0)

int cudlaGetVersion(uint64_t *version) {
  CALLED("cudlaGetVersion", "");
  *version = 1002001;
  return 0;
}
int cudlaDeviceGetCount(uint64_t *count) {
  CALLED("cudlaDeviceGetCount", "");
  *count = 2;
  return 0;
}
int cudlaCreateDevice(uint64_t number, Device **device, uint32_t flags) {
  char text[32];
  snprintf(text, sizeof text, "%d", (int)number);
  CALLED("cudlaCreateDevice", text);
  if (number > 1 || flags != 0) return wrong("device", 1);
  *device = calloc(1, sizeof **device);
  (*device)->open = 1;
  (*device)->number = number;
  return 0;
}
int cudlaModuleLoadFromMemory(Device *device, const uint8_t *data, size_t size, Module **module,
                              uint32_t flags) {
  uint32_t numbers[2];
  CALLED("cudlaModuleLoadFromMemory", "");
  if (!device || !device->open) return wrong("load without a device", 8);
  if (device->module) return wrong("second loadable of a device", 13);
  if (size < 16 || memcmp(data, "STUBDLA1", 8) || flags) return 7;
  memcpy(numbers, data + 8, 8);
  if (size != 16 + sizeof(Descriptor) * (numbers[0] + numbers[1])) return 7;
  *module = calloc(1, sizeof **module);
  (*module)->device = device;
  (*module)->inputs = numbers[0];
  (*module)->outputs = numbers[1];
  (*module)->descriptors = malloc(size);
  memcpy((*module)->descriptors, data + 16, size - 16);
  device->module = *module;
  return 0;
}
int cudlaModuleGetAttributes(Module *module, int type, Attribute *attribute) {
  char text[8];
  snprintf(text, sizeof text, "%d", type);
  CALLED("cudlaModuleGetAttributes", text);
  if (!module || module->gone) return wrong("attributes without a module", 12);
  if (type == 0) attribute->count = module->inputs;
  else if (type == 1) attribute->count = module->outputs;
  else if (type == 2 || type == 3) {
    int first = type == 2 ? 0 : module->inputs, count = type == 2 ? module->inputs : module->outputs;
    memcpy(attribute->descriptors, module->descriptors + first, count * sizeof(Descriptor));
  } else return 9;
  return 0;
}
int cudlaMemRegister(Device *device, const uint64_t *ptr, size_t size, uint64_t **mapped,
                     uint32_t flags) {
  CALLED("cudlaMemRegister", "");
  if (!device || !device->open) return wrong("register without a device", 8);
  if (!ptr || (uintptr_t)ptr % 32 || !size || flags) return wrong("memory to register", 4);
  for (int i = 0; i < MOST; i++)
    if (device->mappings[i].ptr == (const uint8_t *)ptr) return wrong("registered twice", 11);
  for (int i = 0; i < MOST; i++)
    if (!device->mappings[i].ptr) {
      /* the DLA's address is another one: who mixes them up is found out */
      Mapping one = {(const uint8_t *)ptr, size, (uint64_t *)((uintptr_t)ptr ^ 0x5a5a000000000000)};
      device->mappings[i] = one;
      *mapped = one.mapped;
      return 0;
    }
  return 2;
}
static Mapping *mapping(Device *device, const uint64_t *mapped) {
  for (int i = 0; i < MOST; i++)
    if (device->mappings[i].ptr && device->mappings[i].mapped == mapped)
      return &device->mappings[i];
  return NULL;
}
int cudlaMemUnregister(Device *device, const uint64_t *mapped) {
  CALLED("cudlaMemUnregister", "");
  if (!device || !device->open) return wrong("unregister without a device", 8);
  if (!device->module) return wrong("unregister after unload", 12);
  Mapping *one = mapping(device, mapped);
  if (!one) return wrong("unregister unknown memory", 4);
  memset(one, 0, sizeof *one);
  return 0;
}
int cudlaSubmitTask(Device *device, const Task *task, uint32_t count, void *stream,
                    uint32_t flags) {
  CALLED("cudlaSubmitTask", "");
  if (!device || !device->open) return wrong("submit without a device", 8);
  if (count != 1 || !stream || flags) return wrong("submit", 1);
  Module *module = task->module;
  if (!module || module != device->module) return wrong("submit of another module", 12);
  if (task->waitEvents || task->signalEvents || !task->inputTensor || !task->outputTensor)
    return wrong("events in hybrid mode", 13);
  if (task->numInputTensors != module->inputs || task->numOutputTensors != module->outputs)
    return wrong("numbers of tensors", 1);
  Mapping *first = NULL;
  for (uint32_t i = 0; i < module->inputs; i++) {
    Mapping *one = mapping(device, task->inputTensor[i]);
    if (!one || one->size < module->descriptors[i].size) return wrong("input memory", 4);
    if (!i) first = one;
  }
  for (uint32_t i = 0; i < module->outputs; i++) {
    Mapping *one = mapping(device, task->outputTensor[i]);
    size_t size = module->descriptors[module->inputs + i].size;
    if (!one || one->size < size) return wrong("output memory", 4);
    for (size_t k = 0; first && k < size && k < first->size; k++)
      ((uint8_t *)one->ptr)[k] = (uint8_t)(first->ptr[k] + 1);
  }
  return 0;
}
int cudlaDeviceGetAttribute(Device *device, int type, DeviceAttribute *attribute) {
  CALLED("cudlaDeviceGetAttribute", "");
  if (!device || !device->open) return 8;
  if (type == 0) attribute->unified = 1;
  else attribute->version = 2;
  return 0;
}
int cudlaGetLastError(Device *device) {
  CALLED("cudlaGetLastError", "");
  return device && device->open ? 0 : wrong("error without a device", 8);
}
int cudlaModuleUnload(Module *module, uint32_t flags) {
  CALLED("cudlaModuleUnload", "");
  if (!module || module->gone || flags) return wrong("unload", 12);
  for (int i = 0; i < MOST; i++)
    if (module->device->mappings[i].ptr) return wrong("unload before unregister", 1);
  module->gone = 1;
  module->device->module = NULL;
  return 0;
}
int cudlaDestroyDevice(Device *device) {
  CALLED("cudlaDestroyDevice", "");
  if (!device || !device->open) return wrong("destroy", 8);
  if (device->module) return wrong("destroy before unload", 1);
  device->open = 0;
  return 0;
}
/* what the header says of its structures, for a comparison at run time */
int stub_layout(int which) {
  switch (which) {
    case 0: return sizeof(Descriptor);
    case 1: return offsetof(Descriptor, size);
    case 2: return offsetof(Descriptor, dataFormat);
    case 3: return offsetof(Descriptor, pixelMapping);
    case 4: return offsetof(Descriptor, stride);
    case 5: return sizeof(Task);
    case 6: return offsetof(Task, outputTensor);
    case 7: return offsetof(Task, numInputTensors);
    case 8: return offsetof(Task, inputTensor);
    case 9: return offsetof(Task, signalEvents);
    case 10: return sizeof(Attribute);
    case 11: return sizeof(DeviceAttribute);
  }
  return -1;
}
