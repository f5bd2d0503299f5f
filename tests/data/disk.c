// SPDX-License-Identifier: Apache-2.0
// The disk that can end at any call, of the checkpoints' tests.
#include "../ckpt/disk.c"
