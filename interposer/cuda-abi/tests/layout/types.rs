//! Every type of the crate that crosses the ABI, with its fields: the list the comparisons run
//! over.
//!
//! `+ { … }` holds the members of unnamed unions, which every binding names in its own way.

/// Structs and unions that cudarc has too.
macro_rules! in_cudarc {
    ($with:ident) => {
        $with! {
            CUuuid { bytes }
            CUmemFabricHandle_v1 { data }
            CUipcEventHandle_v1 { reserved }
            CUipcMemHandle_v1 { reserved }
            CUstreamBatchMemOpParams_v1 { operation, waitValue, waitValue.operation, waitValue.address, waitValue.flags,
                waitValue.alias, writeValue, writeValue.operation, writeValue.address, writeValue.flags,
                writeValue.alias, flushRemoteWrites, flushRemoteWrites.operation, flushRemoteWrites.flags,
                memoryBarrier, memoryBarrier.operation, memoryBarrier.flags, atomicReduction, atomicReduction.operation,
                atomicReduction.flags, atomicReduction.reductionOp, atomicReduction.dataType, atomicReduction.address,
                atomicReduction.value, atomicReduction.alias, pad } + { waitValue.anon.value, waitValue.anon.value64,
                writeValue.anon.value, writeValue.anon.value64 }
            CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 { ctx, count, paramArray, flags }
            CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 { ctx, count, paramArray, flags }
            CUasyncNotificationInfo { type_, info, info.overBudget, info.overBudget.bytesOverBudget }
            CUdevprop_v1 { maxThreadsPerBlock, maxThreadsDim, maxGridSize, sharedMemPerBlock, totalConstantMemory,
                SIMDWidth, memPitch, regsPerBlock, clockRate, textureAlign }
            CUaccessPolicyWindow_v1 { base_ptr, num_bytes, hitRatio, hitProp, missProp }
            CUDA_KERNEL_NODE_PARAMS_v1 { func, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                sharedMemBytes, kernelParams, extra }
            CUDA_KERNEL_NODE_PARAMS_v2 { func, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                sharedMemBytes, kernelParams, extra, kern, ctx }
            CUDA_KERNEL_NODE_PARAMS_v3 { func, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                sharedMemBytes, kernelParams, extra, kern, ctx }
            CUDA_MEMSET_NODE_PARAMS_v1 { dst, pitch, value, elementSize, width, height }
            CUDA_MEMSET_NODE_PARAMS_v2 { dst, pitch, value, elementSize, width, height, ctx }
            CUDA_HOST_NODE_PARAMS_v1 { fn_, userData }
            CUDA_HOST_NODE_PARAMS_v2 { fn_, userData, syncMode } + { anon.ctx, anon.gCtx }
            CUDA_CONDITIONAL_NODE_PARAMS { handle, type_, size, phGraph_out, ctx }
            CUgraphEdgeData { from_port, to_port, type_, reserved }
            CUDA_GRAPH_INSTANTIATE_PARAMS { flags, hUploadStream, hErrNode_out, result_out }
            CUlaunchMemSyncDomainMap { default_, remote }
            CUlaunchAttributeValue { pad, accessPolicyWindow, cooperative, syncPolicy, clusterDim, clusterDim.x,
                clusterDim.y, clusterDim.z, clusterSchedulingPolicyPreference, programmaticStreamSerializationAllowed,
                programmaticEvent, programmaticEvent.event, programmaticEvent.flags,
                programmaticEvent.triggerAtBlockStart, launchCompletionEvent, launchCompletionEvent.event,
                launchCompletionEvent.flags, priority, memSyncDomainMap, memSyncDomain, preferredClusterDim,
                preferredClusterDim.x, preferredClusterDim.y, preferredClusterDim.z, deviceUpdatableKernelNode,
                deviceUpdatableKernelNode.deviceUpdatable, deviceUpdatableKernelNode.devNode, sharedMemCarveout,
                nvlinkUtilCentricScheduling, portableClusterSizeMode, sharedMemoryMode }
            CUlaunchAttribute { id, pad, value }
            CUlaunchConfig { gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
                attrs, numAttrs }
            CUexecAffinitySmCount_v1 { val }
            CUexecAffinityParam_v1 { type_, param, param.smCount }
            CUctxCigParam { sharedDataType, sharedData }
            CUctxCreateParams { execAffinityParams, numExecAffinityParams, cigParams }
            CUstreamCigParam { streamSharedDataType, streamSharedData }
            CUstreamCigCaptureParams { streamCigParams }
            CUlibraryHostUniversalFunctionAndDataTable { functionTable, functionWindowSize, dataTable, dataWindowSize }
            CUDA_MEMCPY2D_v2 { srcXInBytes, srcY, srcMemoryType, srcHost, srcDevice, srcArray, srcPitch, dstXInBytes,
                dstY, dstMemoryType, dstHost, dstDevice, dstArray, dstPitch, WidthInBytes, Height }
            CUDA_MEMCPY3D_v2 { srcXInBytes, srcY, srcZ, srcLOD, srcMemoryType, srcHost, srcDevice, srcArray, reserved0,
                srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD, dstMemoryType, dstHost, dstDevice, dstArray,
                reserved1, dstPitch, dstHeight, WidthInBytes, Height, Depth }
            CUDA_MEMCPY3D_PEER_v1 { srcXInBytes, srcY, srcZ, srcLOD, srcMemoryType, srcHost, srcDevice, srcArray,
                srcContext, srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD, dstMemoryType, dstHost, dstDevice,
                dstArray, dstContext, dstPitch, dstHeight, WidthInBytes, Height, Depth }
            CUDA_MEMCPY_NODE_PARAMS { flags, reserved, copyCtx, copyParams }
            CUDA_ARRAY_DESCRIPTOR_v2 { Width, Height, Format, NumChannels }
            CUDA_ARRAY3D_DESCRIPTOR_v2 { Width, Height, Depth, Format, NumChannels, Flags }
            CUDA_ARRAY_SPARSE_PROPERTIES_v1 { tileExtent, tileExtent.width, tileExtent.height, tileExtent.depth,
                miptailFirstLevel, miptailSize, flags, reserved }
            CUDA_ARRAY_MEMORY_REQUIREMENTS_v1 { size, alignment, reserved }
            CUDA_RESOURCE_DESC_v1 { resType, res, res.array, res.array.hArray, res.mipmap, res.mipmap.hMipmappedArray,
                res.linear, res.linear.devPtr, res.linear.format, res.linear.numChannels, res.linear.sizeInBytes,
                res.pitch2D, res.pitch2D.devPtr, res.pitch2D.format, res.pitch2D.numChannels, res.pitch2D.width,
                res.pitch2D.height, res.pitch2D.pitchInBytes, res.reserved, res.reserved.reserved, flags }
            CUDA_TEXTURE_DESC_v1 { addressMode, filterMode, flags, maxAnisotropy, mipmapFilterMode, mipmapLevelBias,
                minMipmapLevelClamp, maxMipmapLevelClamp, borderColor, reserved }
            CUDA_RESOURCE_VIEW_DESC_v1 { format, width, height, depth, firstMipmapLevel, lastMipmapLevel, firstLayer,
                lastLayer, reserved }
            CUtensorMap { opaque }
            CUDA_POINTER_ATTRIBUTE_P2P_TOKENS_v1 { p2pToken, vaSpaceToken }
            CUDA_LAUNCH_PARAMS_v1 { function, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                sharedMemBytes, hStream, kernelParams }
            CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1 { type_, handle, handle.fd, handle.win32, handle.win32.handle,
                handle.win32.name, handle.nvSciBufObject, size, flags, reserved }
            CUDA_EXTERNAL_MEMORY_BUFFER_DESC_v1 { offset, size, flags, reserved }
            CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC_v1 { offset, arrayDesc, numLevels, reserved }
            CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1 { type_, handle, handle.fd, handle.win32, handle.win32.handle,
                handle.win32.name, handle.nvSciSyncObj, flags, reserved }
            CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1 { params, params.fence, params.fence.value, params.nvSciSync,
                params.nvSciSync.fence, params.nvSciSync.reserved, params.keyedMutex, params.keyedMutex.key,
                params.reserved, flags, reserved }
            CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1 { params, params.fence, params.fence.value, params.nvSciSync,
                params.nvSciSync.fence, params.nvSciSync.reserved, params.keyedMutex, params.keyedMutex.key,
                params.keyedMutex.timeoutMs, params.reserved, flags, reserved }
            CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v1 { extSemArray, paramsArray, numExtSems }
            CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2 { extSemArray, paramsArray, numExtSems } + { anon.ctx, anon.gCtx }
            CUDA_EXT_SEM_WAIT_NODE_PARAMS_v1 { extSemArray, paramsArray, numExtSems }
            CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2 { extSemArray, paramsArray, numExtSems } + { anon.ctx, anon.gCtx }
            CUarrayMapInfo_v1 { resourceType, resource, resource.mipmap, resource.array, subresourceType, subresource,
                subresource.sparseLevel, subresource.sparseLevel.level, subresource.sparseLevel.layer,
                subresource.sparseLevel.offsetX, subresource.sparseLevel.offsetY, subresource.sparseLevel.offsetZ,
                subresource.sparseLevel.extentWidth, subresource.sparseLevel.extentHeight,
                subresource.sparseLevel.extentDepth, subresource.miptail, subresource.miptail.layer,
                subresource.miptail.offset, subresource.miptail.size, memOperationType, memHandleType, memHandle,
                memHandle.memHandle, offset, deviceBitMask, flags, reserved }
            CUmemLocation_v1 { type_ } + { id }
            CUmemAllocationProp_v1 { type_, requestedHandleTypes, location, win32HandleMetaData, allocFlags,
                allocFlags.compressionType, allocFlags.gpuDirectRDMACapable, allocFlags.usage, allocFlags.reserved }
            CUmulticastObjectProp_v1 { numDevices, size, handleTypes, flags }
            CUmemAccessDesc_v1 { location, flags }
            CUgraphExecUpdateResultInfo_v1 { result, errorNode, errorFromNode }
            CUmemPoolProps_v1 { allocType, handleTypes, location, win32SecurityAttributes, maxSize, usage,
                gpuDirectRDMACapable, reserved }
            CUmemPoolPtrExportData_v1 { reserved }
            CUmemcpyAttributes_v1 { srcAccessOrder, srcLocHint, dstLocHint, flags }
            CUoffset3D_v1 { x, y, z }
            CUextent3D_v1 { width, height, depth }
            CUmemcpy3DOperand_v1 { type_, op, op.ptr, op.ptr.ptr, op.ptr.rowLength, op.ptr.layerHeight, op.ptr.locHint,
                op.array, op.array.array, op.array.offset }
            CUDA_MEMCPY3D_BATCH_OP_v1 { src, dst, extent, srcAccessOrder, flags }
            CUDA_MEM_ALLOC_NODE_PARAMS_v1 { poolProps, accessDescs, accessDescCount, bytesize, dptr }
            CUDA_MEM_ALLOC_NODE_PARAMS_v2 { poolProps, accessDescs, accessDescCount, bytesize, dptr }
            CUDA_MEM_FREE_NODE_PARAMS { dptr }
            CUDA_CHILD_GRAPH_NODE_PARAMS { graph, ownership }
            CUDA_EVENT_RECORD_NODE_PARAMS { event } + { anon.ctx, anon.gCtx }
            CUDA_EVENT_WAIT_NODE_PARAMS { event }
            CUgraphNodeParams { type_, reserved0, reserved2 } + { anon.reserved1, anon.kernel, anon.memcpy,
                anon.memset, anon.host, anon.graph, anon.eventWait, anon.eventRecord, anon.extSemSignal,
                anon.extSemWait, anon.alloc, anon.free, anon.memOp, anon.conditional, anon.memcpyBatch,
                anon.fabricCpyBatch, anon.asBytes }
            CUcheckpointCustomStoragePerDeviceData { devPtr, size, stream }
            CUcheckpointCustomStorageInfo { handle, perDeviceData, deviceCount }
            CUcheckpointLockArgs { timeoutMs, reserved0, reserved1 }
            CUcheckpointCheckpointArgs { customStorageInfo_out, reserved }
            CUcheckpointGpuPair { oldUuid, newUuid }
            CUcheckpointRestoreArgs { gpuPairs, gpuPairsCount, padding0, customStorageInfo_out, reserved }
            CUcheckpointUnlockArgs { reserved }
            CUmemDecompressParams { srcNumBytes, dstNumBytes, dstActBytes, src, dst, algo, padding }
            CUcliqueInfo { type_, id }
            CUlogicalEndpointFabricHandle { data }
            CUlogicalEndpointProp { type_, size, ipcHandleTypes, flags } + { anon.unicast, anon.unicast.device,
                anon.multicast, anon.multicast.numDevices }
            CUdevSmResource { smCount, minSmPartitionSize, smCoscheduledAlignment, flags, localityDomainId }
            CUdevWorkqueueConfigResource { device, wqConcurrencyLimit, sharingScope }
            CUdevWorkqueueResource { reserved }
            CU_DEV_SM_RESOURCE_GROUP_PARAMS { smCount, coscheduledSmCount, preferredCoscheduledSmCount, flags,
                localityDomainId, reserved }
            CUdevResource_v1 { type_, _internal_padding, nextResource } + { anon.sm, anon.wqConfig, anon.wq,
                anon._oversize }
        }
    };
}

/// Structs and unions that only the header has: the functions of CUDA 2, and what is newer than
/// cudarc.
macro_rules! header_only {
    ($with:ident) => {
        $with! {
            CUDA_MEMCPY_BATCH_NODE_PARAMS_V1 { count, dsts, srcs, sizes, attrs, attrsIdxs, numAttrs } + { anon.ctx,
                anon.gCtx }
            CUDA_FABRIC_CPY_BATCH_NODE_PARAMS_V1 { numOps, opList, flags } + { anon.ctx, anon.gCtx }
            CUfabricCpyOperand { type_, op, op.ptr, op.ptr.ptr, op.ptr.locHint, op.le, op.le.id, op.le.offset }
            CUDA_FABRIC_COPY_BATCH_OP_v1 { src, dst, size, flags }
            CUDA_MEMCPY2D_v1 { srcXInBytes, srcY, srcMemoryType, srcHost, srcDevice, srcArray, srcPitch, dstXInBytes,
                dstY, dstMemoryType, dstHost, dstDevice, dstArray, dstPitch, WidthInBytes, Height }
            CUDA_MEMCPY3D_v1 { srcXInBytes, srcY, srcZ, srcLOD, srcMemoryType, srcHost, srcDevice, srcArray, reserved0,
                srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD, dstMemoryType, dstHost, dstDevice, dstArray,
                reserved1, dstPitch, dstHeight, WidthInBytes, Height, Depth }
            CUDA_ARRAY_DESCRIPTOR_v1 { Width, Height, Format, NumChannels }
            CUDA_ARRAY3D_DESCRIPTOR_v1 { Width, Height, Depth, Format, NumChannels, Flags }
        }
    };
}

/// Structs and unions of NVML.
macro_rules! of_nvml {
    ($with:ident) => {
        $with! {
            nvmlPciInfoExt_v1_t { version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass, busId
                }
            nvmlPciInfo_t { busIdLegacy, domain, bus, device, pciDeviceId, pciSubSystemId, busId }
            nvmlEccErrorCounts_t { l1Cache, l2Cache, deviceMemory, registerFile }
            nvmlUtilization_t { gpu, memory }
            nvmlMemory_t { total, free, used }
            nvmlMemory_v2_t { version, total, reserved, free, used }
            nvmlSetMemoryLimits_v1_t { nameSpace, softLimit, hardLimit }
            nvmlGetMemoryLimits_v1_t { nameSpace, softLimit, hardLimit, currentUsed }
            nvmlBAR1Memory_t { bar1Total, bar1Free, bar1Used }
            nvmlProcessInfo_v1_t { pid, usedGpuMemory }
            nvmlProcessInfo_v2_t { pid, usedGpuMemory, gpuInstanceId, computeInstanceId }
            nvmlProcessDetail_v1_t { pid, usedGpuMemory, gpuInstanceId, computeInstanceId, usedGpuCcProtectedMemory }
            nvmlProcessDetailList_v1_t { version, mode, numProcArrayEntries, procArray }
            nvmlDeviceAttributes_t { multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount,
                sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount, memorySizeMB }
            nvmlValue_t { dVal, siVal, uiVal, ulVal, ullVal, sllVal, usVal }
            nvmlSample_t { timeStamp, sampleValue }
            nvmlViolationTime_t { referenceTime, violationTime }
            nvmlUUIDValue_t { str, bytes }
            nvmlUUID_v1_t { version, type_, value }
            nvmlFanSpeedInfo_v1_t { version, fan, speed }
            nvmlProcessUtilizationSample_t { pid, timeStamp, smUtil, memUtil, encUtil, decUtil }
            nvmlProcessUtilizationInfo_v1_t { timeStamp, pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil }
            nvmlProcessesUtilizationInfo_v1_t { version, processSamplesCount, lastSeenTimeStamp, procUtilArray }
            nvmlEncoderSessionInfo_t { sessionId, pid, vgpuInstance, codecType, hResolution, vResolution, averageFps,
                averageLatency }
            nvmlFBCSessionInfo_t { sessionId, pid, vgpuInstance, displayOrdinal, sessionType, sessionFlags, hMaxResolution,
                vMaxResolution, hResolution, vResolution, averageFPS, averageLatency }
            nvmlGpuDynamicPstatesInfo_t { flags, utilization }
            nvmlFieldValue_t { fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value }
            nvmlEventData_t { device, eventType, eventData, gpuInstanceId, computeInstanceId }
            nvmlAccountingStats_t { gpuUtilization, memoryUtilization, maxMemoryUsage, time, startTime, isRunning,
                reserved }
            nvmlAccountingStats_v2_t { pid, isRunning, gpuUtilization, memoryUtilization, maxMemoryUsage, sampleCount,
                sumGpuUtil, sumFbUtil, time, startTime }
            nvmlTemperature_v1_t { version, sensorType, temperature }
            nvmlExcludedDeviceInfo_t { pciInfo, uuid }
        }
    };
}

/// Enumerations of the driver.
macro_rules! cuda_values {
    ($with:ident) => {
        $with! {
            CUarray_format, CUarray_cubemap_face, CUmemcpyFlags, CUmemcpySrcAccessOrder, CUmemcpy3DOperandType,
            CUmemDecompressAlgorithm, CUprocessState, CUctx_flags, CUlimit, CUexecAffinityType, CUcigDataType,
            CUatomicOperation, CUatomicOperationCapability, CUdevice_attribute, CUcomputemode, CUdevice_P2PAttribute,
            CUdeviceNumaConfig, CUasyncNotificationType, CUcoredumpSettings, CUCoredumpGenerationFlags, CUlogLevel,
            CUgraphicsRegisterFlags, CUgraphicsMapResourceFlags, CUexternalMemoryHandleType,
            CUexternalSemaphoreHandleType, CUcliqueType, CUlogicalEndpointIpcHandleType, CUlogicalEndpointType,
            CUlogicalEndpointFlag, CUfabricCpyOperandType, CUoccupancy_flags, CUfunction_attribute, CUfunc_cache,
            CUsharedconfig, CUshared_carveout, CUjit_option, CUjit_target, CUjit_fallback, CUjit_cacheMode,
            CUjitInputType, CUlibraryOption, CUmoduleLoadingMode, CUfunctionLoadingState, CUgraphConditionalNodeType,
            CUgraphNodeType, CUgraphDependencyType, CUgraphInstantiateResult, CUgraphExecUpdateResult,
            CUgraphChildGraphNodeOwnership, CUgraphDebugDot_flags, CUuserObject_flags, CUuserObjectRetain_flags,
            CUgraphInstantiate_flags, CUgraphRecaptureStatus, CUipcMem_flags, CUhostTaskSyncMode, CUaccessProperty,
            CUsynchronizationPolicy, CUclusterSchedulingPolicy, CUlaunchMemSyncDomain,
            CUlaunchAttributePortableClusterMode, CUsharedMemoryMode, CUlaunchAttributeID, CUmemAttach_flags,
            CUpointer_attribute, CUmemorytype, CUmem_advise, CUmem_range_attribute, CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS,
            CUmemLocationType, CUflushGPUDirectRDMAWritesOptions, CUGPUDirectRDMAWritesOrdering,
            CUflushGPUDirectRDMAWritesScope, CUflushGPUDirectRDMAWritesTarget, CUmemPool_attribute,
            CUgraphMem_attribute, CUdriverProcAddress_flags, CUdriverProcAddressQueryResult, CUgreenCtxCreate_flags,
            CUdevSmResourceGroup_flags, CUdevSmResourceSplitByCount_flags, CUdevResourceType, CUdevWorkqueueConfigScope,
            CUresult, CUevent_sched_flags, CUstream_flags, CUevent_flags, CUevent_record_flags, CUevent_wait_flags,
            CUstreamWaitValue_flags, CUstreamWriteValue_flags, CUstreamBatchMemOpType, CUstreamMemoryBarrier_flags,
            CUstreamAtomicReductionOpType, CUstreamAtomicReductionDataType, CUstreamUpdateCaptureDependencies_flags,
            CUstreamCaptureStatus, CUstreamCaptureMode, CUstreamCigDataType, CUaddress_mode, CUfilter_mode,
            CUresourcetype, CUresourceViewFormat, CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle,
            CUtensorMapL2promotion, CUtensorMapFloatOOBfill, CUtensorMapIm2ColWideMode, CUtensorMapAllocClass,
            CUmemAllocationHandleType, CUmemAccess_flags, CUmemAllocationType, CUmemAllocationGranularity_flags,
            CUmemRangeHandleType, CUmemRangeFlags, CUarraySparseSubresourceType, CUmemOperationType, CUmemHandleType,
            CUmemAllocationCompType, CUmulticastGranularity_flags,
        }
    };
}

/// Enumerations of NVML whose values are C enumerators or macros of their names.
macro_rules! nvml_values {
    ($with:ident) => {
        $with! {
            nvmlUUIDType_t, nvmlBrandType_t, nvmlGpuTopologyLevel_t, nvmlGpuP2PStatus_t, nvmlGpuP2PCapsIndex_t,
            nvmlIntNvLinkDeviceType_t, nvmlGpuVirtualizationMode_t, nvmlDeviceArchitecture_t, nvmlBusType_t,
            nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlMemoryLocation_t, nvmlProcessMode_t, nvmlReturn_t,
            nvmlEnableState_t, nvmlComputeMode_t, nvmlDriverModel_t, nvmlGpuOperationMode_t, nvmlRestrictedAPI_t,
            nvmlInforomObject_t, nvmlPstates_t, nvmlClockType_t, nvmlClockId_t, nvmlTemperatureSensors_t,
            nvmlTemperatureThresholds_t, nvmlPcieUtilCounter_t, nvmlPerfPolicyType_t, nvmlSamplingType_t,
            nvmlValueType_t, nvmlClocksEventReasons, nvmlEventType,
        }
    };
}

pub(crate) use {cuda_values, header_only, in_cudarc, nvml_values, of_nvml};
