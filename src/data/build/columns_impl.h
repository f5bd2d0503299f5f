// SPDX-License-Identifier: Apache-2.0
// What the writer and the reader of tables share. Not for use outside columns*.c.
#ifndef GW_DATA_BUILD_COLUMNS_IMPL_H
#define GW_DATA_BUILD_COLUMNS_IMPL_H

#define GW_TABLE_HEAD "GWTABLE1"
#define GW_TABLE_END  "GWTABLE."

enum { GW_TABLE_TRAILER = 32 };

#endif
