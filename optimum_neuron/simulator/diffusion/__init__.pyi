from .estimate import PictureCounts as PictureCounts, count_pipeline as count_pipeline, picture_times as picture_times
from .plan import PicturePlan as PicturePlan, plan_pictures as plan_pictures
from .request import picture_request as picture_request
from .source import Pipeline as Pipeline, read_pipeline as read_pipeline
