"""nuScenes data for the models: info files, datasets, transforms, and a synthetic nuScenes."""
