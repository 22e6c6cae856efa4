"""Cinder's own fake volume driver, which also copies images.

It does so as a back end that can clone by itself: Cinder then neither downloads the image nor needs sudo and qemu-img.
Metadata of a volume says how it is made: oslab_volume_seconds=N, oslab_volume_error=TEXT.
"""
import time

from cinder import exception
from cinder.tests import fake_driver


class OslabVolumeDriver(fake_driver.FakeLoggingVolumeDriver):
    def _make(self, volume):
        metadata = volume.metadata or {}
        time.sleep(float(metadata.get('oslab_volume_seconds') or 0))
        if 'oslab_volume_error' in metadata:
            raise exception.VolumeBackendAPIException(data=metadata['oslab_volume_error'])

    def create_volume(self, volume):
        self._make(volume)
        return super().create_volume(volume)

    def clone_image(self, context, volume, image_location, image_meta, image_service):
        self._make(volume)
        return {}, True

    def extend_volume(self, volume, new_size):
        pass
