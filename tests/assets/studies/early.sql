BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'autopipe');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MAXIMIZE',1,0);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_user_attributes" VALUES(1,1,'digests','{"schema_version": "1", "workload": "0123456789abcdef/32/fedcba9876543210", "data": "files=70 names=abc", "hardware": "{\"cpu_model\":\"Imaginary 9000\",\"cores\":4,\"memory_bytes\":17179869184,\"gpus\":[],\"gpu_driver\":null,\"storage\":\"ext4\",\"system\":\"Linux 6.8\",\"python\":\"3.11.7\",\"packages\":{\"keras\":\"3.12.0\"},\"keras_backend\":null}", "space": "ea645a877cc8b319"}');
INSERT INTO "study_user_attributes" VALUES(2,1,'ceilings','["{\"status\":\"ceiling\",\"schema_version\":1,\"model_images_per_second\":{\"value\":60000.0,\"low\":59400.0,\"high\":60600.0},\"model_core_seconds_per_image\":0.0,\"loader_images_per_second\":null,\"op_costs\":[{\"name\":\"read\",\"part\":\"fixed\",\"seconds_per_image\":0.00008},{\"name\":\"Decode\",\"part\":\"fixed\",\"seconds_per_image\":0.0006},{\"name\":\"RandomFlip\",\"part\":\"fresh\",\"seconds_per_image\":0.00003},{\"name\":\"Rescale\",\"part\":\"finish\",\"seconds_per_image\":0.0001}],\"read_bytes_per_second\":null,\"bytes_per_image\":null,\"cores\":4.0,\"bound_images_per_second\":null,\"devices\":1,\"channels\":\"last\",\"finish\":\"device\",\"warnings\":[]}", "{\"status\":\"ceiling\",\"schema_version\":1,\"model_images_per_second\":{\"value\":60000.0,\"low\":59400.0,\"high\":60600.0},\"model_core_seconds_per_image\":0.0,\"loader_images_per_second\":null,\"op_costs\":[{\"name\":\"read\",\"part\":\"fixed\",\"seconds_per_image\":0.00008},{\"name\":\"Decode\",\"part\":\"fixed\",\"seconds_per_image\":0.0006},{\"name\":\"RandomFlip\",\"part\":\"fresh\",\"seconds_per_image\":0.00003},{\"name\":\"Rescale\",\"part\":\"finish\",\"seconds_per_image\":0.0001}],\"read_bytes_per_second\":null,\"bytes_per_image\":null,\"cores\":4.0,\"bound_images_per_second\":null,\"devices\":1,\"channels\":\"last\",\"finish\":\"host\",\"warnings\":[]}"]');
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'cache',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(2,1,'finish',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(3,2,'cache',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(4,2,'finish',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(5,3,'loader',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["threads", "processes"]}}');
INSERT INTO "trial_params" VALUES(6,3,'threads.workers',4.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 1, "high": 8}}');
INSERT INTO "trial_params" VALUES(7,3,'threads.queue_size',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [2, 8]}}');
INSERT INTO "trial_params" VALUES(8,3,'cache',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(9,3,'finish',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(10,4,'loader',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["threads", "processes"]}}');
INSERT INTO "trial_params" VALUES(11,4,'processes.workers',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [2, 4]}}');
INSERT INTO "trial_params" VALUES(12,4,'processes.queue_size',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [8]}}');
INSERT INTO "trial_params" VALUES(13,4,'cache',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(14,4,'finish',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(15,5,'loader',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["threads", "processes"]}}');
INSERT INTO "trial_params" VALUES(16,5,'threads.workers',4.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 1, "high": 8}}');
INSERT INTO "trial_params" VALUES(17,5,'threads.queue_size',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [2, 8]}}');
INSERT INTO "trial_params" VALUES(18,5,'cache',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(19,5,'finish',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(20,6,'loader',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["threads", "processes"]}}');
INSERT INTO "trial_params" VALUES(21,6,'processes.workers',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [2, 4]}}');
INSERT INTO "trial_params" VALUES(22,6,'processes.queue_size',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [8]}}');
INSERT INTO "trial_params" VALUES(23,6,'cache',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(24,6,'finish',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(25,7,'loader',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["threads", "processes"]}}');
INSERT INTO "trial_params" VALUES(26,7,'threads.workers',8.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 1, "high": 8}}');
INSERT INTO "trial_params" VALUES(27,7,'threads.queue_size',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [2, 8]}}');
INSERT INTO "trial_params" VALUES(28,7,'cache',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(29,7,'finish',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(30,8,'loader',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["threads", "processes"]}}');
INSERT INTO "trial_params" VALUES(31,8,'threads.workers',4.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 1, "high": 8}}');
INSERT INTO "trial_params" VALUES(32,8,'threads.queue_size',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [2, 8]}}');
INSERT INTO "trial_params" VALUES(33,8,'cache',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(34,8,'finish',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(35,9,'cache',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(36,9,'finish',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(37,10,'loader',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["threads", "processes"]}}');
INSERT INTO "trial_params" VALUES(38,10,'processes.workers',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [2, 4]}}');
INSERT INTO "trial_params" VALUES(39,10,'processes.queue_size',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [8]}}');
INSERT INTO "trial_params" VALUES(40,10,'cache',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(41,10,'finish',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(42,11,'loader',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["threads", "processes"]}}');
INSERT INTO "trial_params" VALUES(43,11,'threads.workers',8.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 1, "high": 8}}');
INSERT INTO "trial_params" VALUES(44,11,'threads.queue_size',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [2, 8]}}');
INSERT INTO "trial_params" VALUES(45,11,'cache',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(46,11,'finish',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(47,12,'cache',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(48,12,'finish',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(49,13,'cache',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(50,13,'finish',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(51,14,'loader',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["threads", "processes"]}}');
INSERT INTO "trial_params" VALUES(52,14,'threads.workers',8.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 1, "high": 8}}');
INSERT INTO "trial_params" VALUES(53,14,'threads.queue_size',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [2, 8]}}');
INSERT INTO "trial_params" VALUES(54,14,'cache',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(55,14,'finish',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(56,15,'loader',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["threads", "processes"]}}');
INSERT INTO "trial_params" VALUES(57,15,'threads.workers',4.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 1, "high": 8}}');
INSERT INTO "trial_params" VALUES(58,15,'threads.queue_size',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [2, 8]}}');
INSERT INTO "trial_params" VALUES(59,15,'cache',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(60,15,'finish',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(61,16,'cache',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(62,16,'finish',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
INSERT INTO "trial_params" VALUES(63,17,'loader',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["threads", "processes"]}}');
INSERT INTO "trial_params" VALUES(64,17,'processes.workers',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [2, 4]}}');
INSERT INTO "trial_params" VALUES(65,17,'processes.queue_size',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [8]}}');
INSERT INTO "trial_params" VALUES(66,17,'cache',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "memory"]}}');
INSERT INTO "trial_params" VALUES(67,17,'finish',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["device", "host"]}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_system_attributes" VALUES(1,1,'fixed_params','{"cache": "none", "finish": "host"}');
INSERT INTO "trial_system_attributes" VALUES(2,2,'fixed_params','{"cache": "none", "finish": "host"}');
INSERT INTO "trial_system_attributes" VALUES(3,3,'fixed_params','{"loader": "threads", "threads.workers": 4, "threads.queue_size": 2, "cache": "memory", "finish": "device"}');
INSERT INTO "trial_system_attributes" VALUES(4,4,'fixed_params','{"loader": "processes", "processes.workers": 4, "processes.queue_size": 8, "cache": "memory", "finish": "device"}');
INSERT INTO "trial_system_attributes" VALUES(5,5,'fixed_params','{"loader": "threads", "threads.workers": 4, "threads.queue_size": 8, "cache": "none", "finish": "device"}');
INSERT INTO "trial_system_attributes" VALUES(6,6,'fixed_params','{"loader": "processes", "processes.workers": 4, "processes.queue_size": 8, "cache": "none", "finish": "device"}');
INSERT INTO "trial_system_attributes" VALUES(7,8,'fixed_params','{"loader": "threads", "threads.workers": 4, "threads.queue_size": 2, "cache": "memory", "finish": "device"}');
INSERT INTO "trial_system_attributes" VALUES(8,9,'fixed_params','{"cache": "none", "finish": "host"}');
INSERT INTO "trial_system_attributes" VALUES(9,10,'fixed_params','{"loader": "processes", "processes.workers": 4, "processes.queue_size": 8, "cache": "memory", "finish": "device"}');
INSERT INTO "trial_system_attributes" VALUES(10,11,'fixed_params','{"loader": "threads", "threads.workers": 8, "threads.queue_size": 8, "cache": "memory", "finish": "device"}');
INSERT INTO "trial_system_attributes" VALUES(11,12,'fixed_params','{"cache": "none", "finish": "host"}');
INSERT INTO "trial_system_attributes" VALUES(12,13,'fixed_params','{"cache": "none", "finish": "host"}');
INSERT INTO "trial_system_attributes" VALUES(13,14,'fixed_params','{"loader": "threads", "threads.workers": 8, "threads.queue_size": 8, "cache": "memory", "finish": "device"}');
INSERT INTO "trial_system_attributes" VALUES(14,15,'fixed_params','{"loader": "threads", "threads.workers": 4, "threads.queue_size": 2, "cache": "memory", "finish": "device"}');
INSERT INTO "trial_system_attributes" VALUES(15,16,'fixed_params','{"cache": "none", "finish": "host"}');
INSERT INTO "trial_system_attributes" VALUES(16,17,'fixed_params','{"loader": "processes", "processes.workers": 4, "processes.queue_size": 8, "cache": "memory", "finish": "device"}');
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'config','{"loader": {"kind": "keras", "workers": 1, "use_multiprocessing": false, "max_queue_size": 10}, "cache": "none", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "host", "channels": "last", "device_prefetch": 0, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(2,1,'key','"498e5e68b2fb"');
INSERT INTO "trial_user_attributes" VALUES(3,1,'origin','"baseline:keras"');
INSERT INTO "trial_user_attributes" VALUES(4,1,'predicted','586.0995931687359');
INSERT INTO "trial_user_attributes" VALUES(5,1,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(6,1,'outcome','{"value": 506.4857330190048, "seconds": 2.8, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"keras\",\"workers\":1,\"use_multiprocessing\":false,\"max_queue_size\":10},\"cache\":\"none\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"host\",\"channels\":\"last\",\"device_prefetch\":0,\"devices\":1},\"config_key\":\"498e5e68b2fb\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.06329022150411952,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0623198683037696,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06299092944738986,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06380312234988263,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06266836909767878,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.061498251311000396,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06193881990160363,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06401794572832714,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06474116029790951,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06391500990517106,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06307107226728366,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06612780816736423,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":506.4857330190048,\"low\":500.25229029816984,\"high\":510.6274347896679},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":100.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":1093009408,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":1,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(7,2,'config','{"loader": {"kind": "tfdata", "num_parallel_calls": "auto", "prefetch": "auto"}, "cache": "none", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "host", "channels": "last", "device_prefetch": 0, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(8,2,'key','"9d214a1fe42e"');
INSERT INTO "trial_user_attributes" VALUES(9,2,'origin','"baseline:tfdata"');
INSERT INTO "trial_user_attributes" VALUES(10,2,'predicted','2042.1352190802156');
INSERT INTO "trial_user_attributes" VALUES(11,2,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(12,2,'outcome','{"value": 2308.0278173324396, "seconds": 2.8, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"tfdata\",\"num_parallel_calls\":\"auto\",\"prefetch\":\"auto\"},\"cache\":\"none\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"host\",\"channels\":\"last\",\"device_prefetch\":0,\"devices\":1},\"config_key\":\"9d214a1fe42e\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.014209602568849984,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.014064376364862286,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.014011591257448946,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013947855341491094,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013746264900795224,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013573908900974447,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013895575048472476,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013486247802622453,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.014045522304964418,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.01376280347898213,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.01361170862584496,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013833864126247456,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":2308.0278173324396,\"low\":2281.0647809690336,\"high\":2338.012440130022},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":1227882496,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":1,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(13,3,'config','{"loader": {"kind": "threads", "workers": 4, "queue_size": 2}, "cache": "memory", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "device", "channels": "last", "device_prefetch": 2, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(14,3,'key','"48b3bd179416"');
INSERT INTO "trial_user_attributes" VALUES(15,3,'origin','"seed:rule"');
INSERT INTO "trial_user_attributes" VALUES(16,3,'predicted','34789.909669987916');
INSERT INTO "trial_user_attributes" VALUES(17,3,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(18,3,'outcome','{"value": 35006.14874520566, "seconds": 2.799999999999999, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"threads\",\"workers\":4,\"queue_size\":2},\"cache\":\"memory\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"device\",\"channels\":\"last\",\"device_prefetch\":2,\"devices\":1},\"config_key\":\"48b3bd179416\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.0009284473011593009,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009198711732910194,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009074833439748549,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009300808132725318,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009153098356835485,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009143958874138183,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009016822659839449,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009075838261107803,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009050332293253768,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009234860434737535,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009138545173240196,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008973083906807807,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":35006.14874520566,\"low\":34717.69220096279,\"high\":35311.279760940015},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":4113203200,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":4,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(19,4,'config','{"loader": {"kind": "processes", "workers": 4, "queue_size": 8}, "cache": "memory", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "device", "channels": "last", "device_prefetch": 2, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(20,4,'key','"553118fdf302"');
INSERT INTO "trial_user_attributes" VALUES(21,4,'origin','"seed:predicted"');
INSERT INTO "trial_user_attributes" VALUES(22,4,'predicted','34789.909669987916');
INSERT INTO "trial_user_attributes" VALUES(23,4,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(24,4,'outcome','{"value": 38319.84115669591, "seconds": 2.8000000000000007, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"processes\",\"workers\":4,\"queue_size\":8},\"cache\":\"memory\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"device\",\"channels\":\"last\",\"device_prefetch\":2,\"devices\":1},\"config_key\":\"553118fdf302\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.000874526924828725,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008273462560316462,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008301316176438546,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008395579842840331,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008482816029042792,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008581511319667881,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008282717976057141,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008199936578015646,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008225991930095644,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008306426654276668,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008467065393498325,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008736397844961767,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":38319.84115669591,\"low\":37506.39544963489,\"high\":38656.27090764756},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":4142104576,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":4,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(25,5,'config','{"loader": {"kind": "threads", "workers": 4, "queue_size": 8}, "cache": "none", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "device", "channels": "last", "device_prefetch": 2, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(26,5,'key','"2b8c37f8c2fe"');
INSERT INTO "trial_user_attributes" VALUES(27,5,'origin','"seed:predicted"');
INSERT INTO "trial_user_attributes" VALUES(28,5,'predicted','4906.1786706592275');
INSERT INTO "trial_user_attributes" VALUES(29,5,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(30,5,'outcome','{"value": 4389.462333097054, "seconds": 1.3000000000000007, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"threads\",\"workers\":4,\"queue_size\":8},\"cache\":\"none\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"device\",\"channels\":\"last\",\"device_prefetch\":2,\"devices\":1},\"config_key\":\"2b8c37f8c2fe\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.007257220714044627,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.007545064657467786,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.007295253938321168,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.007290186718021543,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.007251479942298341,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":4389.462333097054,\"low\":4241.183005413712,\"high\":4412.892299865849},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":1131544576,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":4,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(31,6,'config','{"loader": {"kind": "processes", "workers": 4, "queue_size": 8}, "cache": "none", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "device", "channels": "last", "device_prefetch": 2, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(32,6,'key','"2f427f821959"');
INSERT INTO "trial_user_attributes" VALUES(33,6,'origin','"seed:predicted"');
INSERT INTO "trial_user_attributes" VALUES(34,6,'predicted','4906.1786706592275');
INSERT INTO "trial_user_attributes" VALUES(35,6,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(36,6,'outcome','{"value": 4588.08309619831, "seconds": 1.3000000000000007, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"processes\",\"workers\":4,\"queue_size\":8},\"cache\":\"none\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"device\",\"channels\":\"last\",\"device_prefetch\":2,\"devices\":1},\"config_key\":\"2f427f821959\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.006843307633760951,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.006879413662039762,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.006974590330875923,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.007381750769576664,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.007056153443735753,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":4588.08309619831,\"low\":4335.014957682616,\"high\":4676.1013405462545},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":false,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":1131544576,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":4,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(37,7,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(38,7,'config','{"loader": {"kind": "threads", "workers": 8, "queue_size": 8}, "cache": "memory", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "device", "channels": "last", "device_prefetch": 2, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(39,7,'key','"a0e7a93490d7"');
INSERT INTO "trial_user_attributes" VALUES(40,7,'origin','"surrogate"');
INSERT INTO "trial_user_attributes" VALUES(41,7,'predicted','34789.909669987916');
INSERT INTO "trial_user_attributes" VALUES(42,7,'outcome','{"value": 33358.62844218568, "seconds": 2.8000000000000007, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"threads\",\"workers\":8,\"queue_size\":8},\"cache\":\"memory\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"device\",\"channels\":\"last\",\"device_prefetch\":2,\"devices\":1},\"config_key\":\"a0e7a93490d7\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.0009207140464779147,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009547284689090357,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009705483683513334,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009655989943033888,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009794784934729695,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009831394399198818,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009463279018998153,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009472604122349877,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009338409939983329,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009729079505682369,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009265010778710495,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009638590905610088,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":33358.62844218568,\"low\":32891.086953611666,\"high\":34040.9966188956},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":4161372160,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":8,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(43,8,'config','{"loader": {"kind": "threads", "workers": 4, "queue_size": 2}, "cache": "memory", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "device", "channels": "last", "device_prefetch": 2, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(44,8,'key','"48b3bd179416"');
INSERT INTO "trial_user_attributes" VALUES(45,8,'origin','"proof:0"');
INSERT INTO "trial_user_attributes" VALUES(46,8,'predicted','34789.909669987916');
INSERT INTO "trial_user_attributes" VALUES(47,8,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(48,8,'outcome','{"value": 35310.08647860773, "seconds": 2.3000000000000007, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"threads\",\"workers\":4,\"queue_size\":2},\"cache\":\"memory\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"device\",\"channels\":\"last\",\"device_prefetch\":2,\"devices\":1},\"config_key\":\"48b3bd179416\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.0008983464146710545,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009038014535654832,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.000886166035453758,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.000872420016039922,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008877408349640443,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.00090109493281604,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009148173553332456,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009159212997775592,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008816951685800831,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008731486172455707,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":35833.77947232574,\"low\":35246.005727852855,\"high\":36295.8745240348},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":4113203200,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":4,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(49,9,'config','{"loader": {"kind": "keras", "workers": 1, "use_multiprocessing": false, "max_queue_size": 10}, "cache": "none", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "host", "channels": "last", "device_prefetch": 0, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(50,9,'key','"498e5e68b2fb"');
INSERT INTO "trial_user_attributes" VALUES(51,9,'origin','"proof:0"');
INSERT INTO "trial_user_attributes" VALUES(52,9,'predicted','586.0995931687359');
INSERT INTO "trial_user_attributes" VALUES(53,9,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(54,9,'outcome','{"value": 505.15971421851145, "seconds": 2.3000000000000007, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"keras\",\"workers\":1,\"use_multiprocessing\":false,\"max_queue_size\":10},\"cache\":\"none\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"host\",\"channels\":\"last\",\"device_prefetch\":0,\"devices\":1},\"config_key\":\"498e5e68b2fb\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.06468156863425445,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.062210770656105384,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06494864419967235,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06421586839281071,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06252513478191461,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06622061457960836,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0628192526612087,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06404729572940662,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06316835069202009,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06340248270142554,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":502.17143599084557,\"low\":494.73135354749655,\"high\":510.59607605034216},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":100.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":1093009408,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":1,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(55,10,'config','{"loader": {"kind": "processes", "workers": 4, "queue_size": 8}, "cache": "memory", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "device", "channels": "last", "device_prefetch": 2, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(56,10,'key','"553118fdf302"');
INSERT INTO "trial_user_attributes" VALUES(57,10,'origin','"proof:0"');
INSERT INTO "trial_user_attributes" VALUES(58,10,'predicted','34789.909669987916');
INSERT INTO "trial_user_attributes" VALUES(59,10,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(60,10,'outcome','{"value": 37698.42766193308, "seconds": 2.3000000000000007, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"processes\",\"workers\":4,\"queue_size\":8},\"cache\":\"memory\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"device\",\"channels\":\"last\",\"device_prefetch\":2,\"devices\":1},\"config_key\":\"553118fdf302\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.0008519531192293143,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008770660777008549,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008396585316292295,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008514093743894461,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008494085522656731,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008439706001540982,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008503628793271013,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.000849402674068367,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008625585817391319,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008888694876471648,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":37607.86677667902,\"low\":36792.103930674304,\"high\":37673.5333863858},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":4142104576,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":4,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(61,11,'config','{"loader": {"kind": "threads", "workers": 8, "queue_size": 8}, "cache": "memory", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "device", "channels": "last", "device_prefetch": 2, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(62,11,'key','"a0e7a93490d7"');
INSERT INTO "trial_user_attributes" VALUES(63,11,'origin','"proof:0"');
INSERT INTO "trial_user_attributes" VALUES(64,11,'predicted','34789.909669987916');
INSERT INTO "trial_user_attributes" VALUES(65,11,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(66,11,'outcome','{"value": 33260.21530096009, "seconds": 2.3000000000000007, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"threads\",\"workers\":8,\"queue_size\":8},\"cache\":\"memory\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"device\",\"channels\":\"last\",\"device_prefetch\":2,\"devices\":1},\"config_key\":\"a0e7a93490d7\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.0009749913977078743,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009878127847390134,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009551508627527627,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009710804760116072,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009800802382241413,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.000980338947725487,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009549605337375224,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.00095323829184607,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009350399034796184,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009603681001859703,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":33136.77080264726,\"low\":32650.387949850385,\"high\":33536.17061102252},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":4161372160,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":8,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(67,12,'config','{"loader": {"kind": "tfdata", "num_parallel_calls": "auto", "prefetch": "auto"}, "cache": "none", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "host", "channels": "last", "device_prefetch": 0, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(68,12,'key','"9d214a1fe42e"');
INSERT INTO "trial_user_attributes" VALUES(69,12,'origin','"proof:0"');
INSERT INTO "trial_user_attributes" VALUES(70,12,'predicted','2042.1352190802156');
INSERT INTO "trial_user_attributes" VALUES(71,12,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(72,12,'outcome','{"value": 2339.411146446075, "seconds": 2.3000000000000007, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"tfdata\",\"num_parallel_calls\":\"auto\",\"prefetch\":\"auto\"},\"cache\":\"none\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"host\",\"channels\":\"last\",\"device_prefetch\":0,\"devices\":1},\"config_key\":\"9d214a1fe42e\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.013307770910562114,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013375037913139255,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.014349276434534193,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013354050749416608,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013593626456134602,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013570767258965501,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013585035985289555,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013581903707102399,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.01359912096495409,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013784871273835127,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":2355.8045762772035,\"low\":2338.4406111661597,\"high\":2377.5274804916066},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":1227882496,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":1,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(73,13,'config','{"loader": {"kind": "keras", "workers": 1, "use_multiprocessing": false, "max_queue_size": 10}, "cache": "none", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "host", "channels": "last", "device_prefetch": 0, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(74,13,'key','"498e5e68b2fb"');
INSERT INTO "trial_user_attributes" VALUES(75,13,'origin','"proof:1"');
INSERT INTO "trial_user_attributes" VALUES(76,13,'predicted','586.0995931687359');
INSERT INTO "trial_user_attributes" VALUES(77,13,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(78,13,'outcome','{"value": 499.8135435213959, "seconds": 2.299999999999997, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"keras\",\"workers\":1,\"use_multiprocessing\":false,\"max_queue_size\":10},\"cache\":\"none\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"host\",\"channels\":\"last\",\"device_prefetch\":0,\"devices\":1},\"config_key\":\"498e5e68b2fb\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.06455649236549398,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0654598536601063,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06303934960313735,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06478912250288665,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06430856907141747,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06551993946645586,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06507723829411848,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06443088235048715,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06635836988005712,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.06402980603558758,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":494.79997512080945,\"low\":488.6250920135077,\"high\":498.21174617165724},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":100.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":1093009408,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":1,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(79,14,'config','{"loader": {"kind": "threads", "workers": 8, "queue_size": 8}, "cache": "memory", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "device", "channels": "last", "device_prefetch": 2, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(80,14,'key','"a0e7a93490d7"');
INSERT INTO "trial_user_attributes" VALUES(81,14,'origin','"proof:1"');
INSERT INTO "trial_user_attributes" VALUES(82,14,'predicted','34789.909669987916');
INSERT INTO "trial_user_attributes" VALUES(83,14,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(84,14,'outcome','{"value": 33191.13428259795, "seconds": 2.299999999999997, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"threads\",\"workers\":8,\"queue_size\":8},\"cache\":\"memory\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"device\",\"channels\":\"last\",\"device_prefetch\":2,\"devices\":1},\"config_key\":\"a0e7a93490d7\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.0009828563969217408,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.001006982268311195,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009500243198871961,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009655523370566546,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009700511432331491,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009643667992844016,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009255786486245822,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009607792233485479,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009581614017189279,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009887980199456666,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":33162.023706445936,\"low\":32555.718746113256,\"high\":33397.29605324579},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":4161372160,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":8,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(85,15,'config','{"loader": {"kind": "threads", "workers": 4, "queue_size": 2}, "cache": "memory", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "device", "channels": "last", "device_prefetch": 2, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(86,15,'key','"48b3bd179416"');
INSERT INTO "trial_user_attributes" VALUES(87,15,'origin','"proof:1"');
INSERT INTO "trial_user_attributes" VALUES(88,15,'predicted','34789.909669987916');
INSERT INTO "trial_user_attributes" VALUES(89,15,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(90,15,'outcome','{"value": 35500.7855855143, "seconds": 2.299999999999997, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"threads\",\"workers\":4,\"queue_size\":2},\"cache\":\"memory\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"device\",\"channels\":\"last\",\"device_prefetch\":2,\"devices\":1},\"config_key\":\"48b3bd179416\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.0008737733104923887,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008711655556782725,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008891067232083142,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008737878710781291,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008833767630621254,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008791072905136456,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008926678745537795,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009165792103013545,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008718292971358045,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.000925070475433847,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":36312.5983643573,\"low\":35380.01039425556,\"high\":36622.771164717036},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":4113203200,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":4,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(91,16,'config','{"loader": {"kind": "tfdata", "num_parallel_calls": "auto", "prefetch": "auto"}, "cache": "none", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "host", "channels": "last", "device_prefetch": 0, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(92,16,'key','"9d214a1fe42e"');
INSERT INTO "trial_user_attributes" VALUES(93,16,'origin','"proof:1"');
INSERT INTO "trial_user_attributes" VALUES(94,16,'predicted','2042.1352190802156');
INSERT INTO "trial_user_attributes" VALUES(95,16,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(96,16,'outcome','{"value": 2324.860600606262, "seconds": 2.299999999999997, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"tfdata\",\"num_parallel_calls\":\"auto\",\"prefetch\":\"auto\"},\"cache\":\"none\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"host\",\"channels\":\"last\",\"device_prefetch\":0,\"devices\":1},\"config_key\":\"9d214a1fe42e\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.013919651994532553,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.014155006917391886,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.01369387622059457,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013918484800755403,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013984485980856427,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013719447747030215,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013995597071299106,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013483026592335245,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.01376572907309872,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.013994968388161345,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":2299.0044406758416,\"low\":2286.536068710917,\"high\":2332.4554012698427},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":1227882496,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":1,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
INSERT INTO "trial_user_attributes" VALUES(97,17,'config','{"loader": {"kind": "processes", "workers": 4, "queue_size": 8}, "cache": "memory", "cache_fraction": 1.0, "storage": "files", "cut": "deepest", "finish": "device", "channels": "last", "device_prefetch": 2, "devices": 1}');
INSERT INTO "trial_user_attributes" VALUES(98,17,'key','"553118fdf302"');
INSERT INTO "trial_user_attributes" VALUES(99,17,'origin','"proof:1"');
INSERT INTO "trial_user_attributes" VALUES(100,17,'predicted','34789.909669987916');
INSERT INTO "trial_user_attributes" VALUES(101,17,'owner','{"host": "vm", "pid": 25510, "started": 1795326543.27}');
INSERT INTO "trial_user_attributes" VALUES(102,17,'outcome','{"value": 37514.19335859902, "seconds": 2.299999999999997, "json": "{\"status\":\"ok\",\"schema_version\":1,\"config\":{\"loader\":{\"kind\":\"processes\",\"workers\":4,\"queue_size\":8},\"cache\":\"memory\",\"cache_fraction\":1.0,\"storage\":\"files\",\"cut\":\"deepest\",\"finish\":\"device\",\"channels\":\"last\",\"device_prefetch\":2,\"devices\":1},\"config_key\":\"553118fdf302\",\"batch_size\":32,\"windows\":[{\"images\":32,\"seconds\":0.0009059950091099462,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008636279975411684,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008834995784677528,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.000887617790909847,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008540704641476316,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0009055402421645707,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.000893004740504371,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.000890987579052496,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008723162129900303,\"waiting_seconds\":0.0},{\"images\":32,\"seconds\":0.0008943967219820324,\"waiting_seconds\":0.0}],\"images_per_second\":{\"value\":35983.37822208885,\"low\":35625.597988934,\"high\":36683.94502300249},\"first_batch_seconds\":0.1,\"epoch_restart_seconds\":null,\"cache_fill_seconds\":null,\"discarded_batches\":0,\"stable\":true,\"warnings\":[],\"data_wait_share\":0.0,\"resources\":{\"cpu_percent\":400.0,\"others_cpu_percent\":null,\"peak_rss_bytes\":4142104576,\"shm_bytes\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null,\"gpu_watts\":null},\"page_cache\":\"warm\",\"ran\":{\"threads\":4,\"processes\":1,\"devices\":[\"none\"],\"backend\":\"none\",\"versions\":{}},\"conversion\":null,\"phase_seconds\":{},\"overhead_seconds\":0.0}"}');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,5.06485733019004783286e+02,'FINITE');
INSERT INTO "trial_values" VALUES(2,2,0,2.30802781733243955394e+03,'FINITE');
INSERT INTO "trial_values" VALUES(3,3,0,3.50061487452056608162e+04,'FINITE');
INSERT INTO "trial_values" VALUES(4,4,0,3.83198411566959111947e+04,'FINITE');
INSERT INTO "trial_values" VALUES(5,5,0,4.38946233309705439746e+03,'FINITE');
INSERT INTO "trial_values" VALUES(6,6,0,4588.08309619831,'FINITE');
INSERT INTO "trial_values" VALUES(7,7,0,3.33586284421856835245e+04,'FINITE');
INSERT INTO "trial_values" VALUES(8,8,0,3.53100864786077290767e+04,'FINITE');
INSERT INTO "trial_values" VALUES(9,9,0,5.05159714218511453516e+02,'FINITE');
INSERT INTO "trial_values" VALUES(10,10,0,3.76984276619330776147e+04,'FINITE');
INSERT INTO "trial_values" VALUES(11,11,0,3.32602153009600879154e+04,'FINITE');
INSERT INTO "trial_values" VALUES(12,12,0,2.33941114644607478121e+03,'FINITE');
INSERT INTO "trial_values" VALUES(13,13,0,4.99813543521395899906e+02,'FINITE');
INSERT INTO "trial_values" VALUES(14,14,0,3.3191134282597951823e+04,'FINITE');
INSERT INTO "trial_values" VALUES(15,15,0,35500.7855855143,'FINITE');
INSERT INTO "trial_values" VALUES(16,16,0,2.32486060060626186906e+03,'FINITE');
INSERT INTO "trial_values" VALUES(17,17,0,3.75141933585990191213e+04,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-22 05:49:10.163006','2026-11-22 05:49:10.337516');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-22 05:49:10.439621','2026-11-22 05:49:10.574674');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-11-22 05:49:10.712846','2026-11-22 05:49:10.820830');
INSERT INTO "trials" VALUES(4,3,1,'COMPLETE','2026-11-22 05:49:10.985499','2026-11-22 05:49:11.102692');
INSERT INTO "trials" VALUES(5,4,1,'COMPLETE','2026-11-22 05:49:11.232844','2026-11-22 05:49:11.317694');
INSERT INTO "trials" VALUES(6,5,1,'COMPLETE','2026-11-22 05:49:11.424770','2026-11-22 05:49:11.522512');
INSERT INTO "trials" VALUES(7,6,1,'COMPLETE','2026-11-22 05:49:11.586904','2026-11-22 05:49:11.797499');
INSERT INTO "trials" VALUES(8,7,1,'COMPLETE','2026-11-22 05:49:12.027545','2026-11-22 05:49:12.148724');
INSERT INTO "trials" VALUES(9,8,1,'COMPLETE','2026-11-22 05:49:12.260680','2026-11-22 05:49:12.351251');
INSERT INTO "trials" VALUES(10,9,1,'COMPLETE','2026-11-22 05:49:12.483443','2026-11-22 05:49:12.584786');
INSERT INTO "trials" VALUES(11,10,1,'COMPLETE','2026-11-22 05:49:12.715749','2026-11-22 05:49:12.860813');
INSERT INTO "trials" VALUES(12,11,1,'COMPLETE','2026-11-22 05:49:12.984770','2026-11-22 05:49:13.111762');
INSERT INTO "trials" VALUES(13,12,1,'COMPLETE','2026-11-22 05:49:13.283753','2026-11-22 05:49:13.399135');
INSERT INTO "trials" VALUES(14,13,1,'COMPLETE','2026-11-22 05:49:13.524105','2026-11-22 05:49:13.634742');
INSERT INTO "trials" VALUES(15,14,1,'COMPLETE','2026-11-22 05:49:13.782927','2026-11-22 05:49:13.962684');
INSERT INTO "trials" VALUES(16,15,1,'COMPLETE','2026-11-22 05:49:14.139219','2026-11-22 05:49:14.262829');
INSERT INTO "trials" VALUES(17,16,1,'COMPLETE','2026-11-22 05:49:14.394720','2026-11-22 05:49:14.545162');
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
